"""The answer for people: a terminal, sentences, and a page that needs no network."""
