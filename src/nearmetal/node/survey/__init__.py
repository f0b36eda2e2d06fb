"""Determines before a run what this machine can do for a study: backends, attachments, programs, KVM.

Must not leave the machine changed."""
