"""The command line: registers the verbs and turns errors into messages and exit codes.

Exit codes: 0 the answer is good · 1 what was asked does not hold · 2 wrong usage · 88 this node is bad ·
93 do not restart.
"""

from __future__ import annotations

import sys

from hinan.cli import agent, decide, demo, ls, plan, rm, run, show, simulate, verify, wire
from hinan.cli.streams import make_tolerant
from hinan.cli.verbs import Verbs
from hinan.core.errors import ConfigError, Fenced, HinanError

EXIT_FAILED, EXIT_USAGE, EXIT_FENCED = 1, 2, 93

app = Verbs(
    name="hinan",
    help="Evacuate training state from GPU memory to host RAM, and bring every rank back to one proven step.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.callback()
def root() -> None:
    """Evacuate training state from GPU memory to host RAM, and bring every rank back to one proven step."""


app.command("demo", epilog=demo.EPILOG)(demo.demo_verb)
app.command("run", epilog=run.EPILOG, context_settings={"allow_interspersed_args": False, "allow_extra_args": True})(
    run.run_verb
)
app.add_typer(agent.app, name="agent")
app.command("ls", epilog=ls.EPILOG)(ls.ls_verb)
app.command("show", epilog=show.EPILOG)(show.show_verb)
app.command("verify", epilog=verify.EPILOG)(verify.verify_verb)
app.command("decide", epilog=decide.EPILOG)(decide.decide_verb)
app.command("rm", epilog=rm.EPILOG)(rm.rm_verb)
plan.register(app)
simulate.register(app)
app.add_typer(wire.app)


def main() -> None:
    """Entry point of the command `hinan`."""
    make_tolerant()
    try:
        app()
    except Fenced as error:
        sys.stderr.write(f"hinan: {error}\n")
        sys.exit(EXIT_FENCED)
    except HinanError as error:
        sys.stderr.write(f"hinan: {error}\n")
        sys.exit(EXIT_USAGE if isinstance(error, ConfigError) else EXIT_FAILED)


if __name__ == "__main__":
    main()
