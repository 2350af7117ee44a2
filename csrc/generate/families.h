/* Every family's record, each defined at the end of its file in this folder. */
#ifndef PS_FAMILIES_H
#define PS_FAMILIES_H

#include "../ps_generate.h"

extern const ps_family ps_family_naive;
extern const ps_family ps_family_forward;
extern const ps_family ps_family_gpipe;
extern const ps_family ps_family_1f1b;
extern const ps_family ps_family_eager_1f1b;
extern const ps_family ps_family_interleaved_1f1b;
extern const ps_family ps_family_looped_bfs;
extern const ps_family ps_family_zb_h1;
extern const ps_family ps_family_zb_h2;
extern const ps_family ps_family_zb_1p;
extern const ps_family ps_family_zb_v;
extern const ps_family ps_family_v_half;
extern const ps_family ps_family_v_min;
extern const ps_family ps_family_dualpipe;
extern const ps_family ps_family_dualpipe_v;
extern const ps_family ps_family_chimera;
extern const ps_family ps_family_hanayo;
extern const ps_family ps_family_pipedream;
extern const ps_family ps_family_seq_1f1b;

#endif
