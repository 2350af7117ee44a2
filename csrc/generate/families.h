/* Every family's record, each defined at the end of its file in this folder. */
#ifndef PS_FAMILIES_H
#define PS_FAMILIES_H

#include "../ps_generate.h"

extern const ps_family ps_family_gpipe;
extern const ps_family ps_family_1f1b;

#endif
