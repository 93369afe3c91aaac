"""The programs that actors run. For now there is one: ``builtin:script`` (:mod:`validator.pvm.script`)."""
