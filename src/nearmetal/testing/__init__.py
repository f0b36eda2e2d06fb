"""What tests, in this repository and in backends elsewhere, need: a strict host, records with known truth."""
