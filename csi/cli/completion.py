"""`csi completion`: print a shell completion script."""

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
    assert kind is not None  # click supports all three
    script = kind(ctx.find_root().command, {}, "csi", "_CSI_COMPLETE")
    # Not the subclass's `source`: the one for bash starts a bash to ask for its version.
    click.echo(ShellComplete.source(script))
