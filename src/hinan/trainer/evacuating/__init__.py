"""Copies of the state while training goes on: when they may begin, how long they may last, what becomes of them."""
