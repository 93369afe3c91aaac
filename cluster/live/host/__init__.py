"""The process that hosts validators: event loop, executor thread, journal, HTTP pages."""
