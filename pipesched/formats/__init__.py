"""Files and formats: each in and out of the nouns, one module each."""
