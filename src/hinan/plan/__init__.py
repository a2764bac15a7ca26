"""How often, to which tier, at what price: the designer's side of hinan. Values in, values out; no torch, no clock.

In reading order, each importing only from those before it:

- `model`: failures, machines, scenario (the question) and what saving and restarting cost.
- `intervals`: the intervals of all tiers at once, and three witnesses: closed forms, the exact form, Monte Carlo.
- `observed`: what runs and traces have shown: measured costs, rates of failures; the intervals of a running job.
- `decision`: which tiers under which limits, what binds, what would change it; `answer` has everything together.
- `simulated`: a year of a job under one policy or another.
- `show`: the answer in a terminal, in sentences, and as a page.
- `selfcheck`: numbers that must come out.
"""
