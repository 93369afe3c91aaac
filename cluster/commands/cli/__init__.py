"""The command line of ``stampede``: it parses the arguments and calls the command."""
