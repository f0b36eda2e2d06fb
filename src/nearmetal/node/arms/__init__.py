"""The instances of an arm: how they are started, found and reached, and what runs beside them.

Must not know a backend by name, or what is measured."""
