"""What checks shapes in tests: beartype, with the rule that an int is a good float."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
