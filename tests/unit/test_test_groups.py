"""Tests of one group run in one process: the installations of the trust table would otherwise be started twice."""

import os

import pytest


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="runs where tests are spread: pytest -n 2")
@pytest.mark.xdist_group("one")
def test_pytest_xdist_knows_the_group_of_a_test(request):
    assert request.node.nodeid.endswith("@one"), "this pytest and this pytest-xdist do not fit together"
