"""What this machine can do for a study, found out before a run: backends, attachments, programs, KVM.

Must not leave the machine changed.
"""
