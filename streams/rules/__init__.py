"""The diagnosis, rule by rule: facts, silences, the straggler, the whole job, and what cannot be seen."""
