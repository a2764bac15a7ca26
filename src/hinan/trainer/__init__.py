"""What runs inside the training process. torch lives here.

`evacuator` is the object that a loop talks to. Below it, each importing only what stands under it:

- `evacuating`: copies beside training: when a state may be copied, the copies, the gate that holds an optimizer back.
- `restoring`: a saved state put back into live objects.
- `attempt`: one incarnation of the run: its ranks, its agent, its arguments, budget and cadence.
- `ports`: memory of devices and of the host, and the threads that copy.
- `state`: what is kept of a live state, under which names, and how it is written down.
"""
