"""How often, to which tier, at what price: the designer's side of hinan. Values in, values out; no torch, no clock.

Reading order: `failures`, `machines`, `scenario` (the question), `costs`, `design`, `joint` (the search), `formulas`,
`exact`, `montecarlo` (the three witnesses), `answer` (everything assembled), `nearest` (impossible questions),
`world`, `policy`, `year` (a simulated year), `attempts` and `measured` (what a run has measured), `posterior`, `online`,
`running` (the intervals of a running job).
"""
