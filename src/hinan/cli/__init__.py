"""The command `hinan`: one module a verb. Verbs read arguments, call the packages below, and print."""
