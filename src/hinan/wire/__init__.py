"""Which wire: readers of machine descriptions, the path of a checkpoint, its ceiling and its addresses.

In reading order, each importing only from those before it:

- `facts`: the typed model of a machine.
- `readers`: what others print about one, kind by kind.
- `machine`: one machine put together from all of it.
- `paths`: which way bytes go, and past whom; `packets`: what goes over a link.
- `checks`: measured against possible, and what is wrong.
- `show`: the terminal, JSON, pictures, explanations.

Owns:      the typed model of a machine (`facts.model`), and everything computed from it.
Promises:  what is not known is None and is shown as *unknown*, never as 0; every figure says whether it is a ceiling
           (computed), measured (by whom), reported (by the machine) or unknown.
Relies on: text that others printed. It may be cut, shuffled or coloured; what is readable is read, the rest is left
           out.
Never:     changes the machine, needs a GPU, imports torch.
"""
