"""Names of the product say what a value is."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
NO_NAMES = frozenset(
    [
        "one",
        "some",
        "found",
        "every",
        "had",
        "several",
        "most",
        "those",
        "these",
        "whole",
        "made",
        "rest",
        "there",
        "here",
        "of",
        "thing",
    ]
)
"""Names of variables that say nothing of what they hold."""
MOST_WITHOUT_NAMES = 0.03


def modules():
    paths = [*(ROOT / "latmon").rglob("*.py"), *(ROOT / "backends").rglob("*.py")]
    assert len(paths) > 100
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def variables(function):
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    stored = [node for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    return {argument.arg for argument in arguments} | {name.id for name in stored}


def test_few_functions_have_variables_whose_names_say_nothing():
    functions = [node for tree in modules().values() for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]
    unnamed = [function for function in functions if variables(function) & NO_NAMES]
    assert len(unnamed) <= MOST_WITHOUT_NAMES * len(functions)
