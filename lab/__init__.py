"""The lab: replica sets whose members each have a machine of their own, as far as one machine can give it. See docs/lab.md."""
