"""Options that several commands share, so that they are spelled and explained the same everywhere."""

from pathlib import Path

import click

config_option = click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Configuration file.  [default: $CSI_CONFIG_PATH, else /etc/csi/config.yaml]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
