"""`csi completion`: the script that makes a shell complete our commands."""

import click
from click.shell_completion import ShellComplete, get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash: eval "$(csi completion bash)"       in ~/.bashrc
    zsh:  eval "$(csi completion zsh)"        in ~/.zshrc
    fish: csi completion fish > ~/.config/fish/completions/csi.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None  # click has all three
    script = kind(ctx.find_root().command, {}, "csi", "_CSI_COMPLETE")
    # Not the shell's own `source`: bash's would start a bash, only to ask for its version.
    click.echo(ShellComplete.source(script))
