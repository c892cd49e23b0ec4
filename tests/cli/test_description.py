"""The rows of `vitlab describe --kernels`."""

from __future__ import annotations

from vitlab.cli.description import kernel_rows


def test_only_successive_blocks_with_the_same_form_and_reason_are_one_row() -> None:
    """The uses of two operators alternate, as `status` lists them; a range never contains a block of another row."""
    reasons = ["", "", "197 keys", "", "many heads", "many heads"]
    paths = []
    for index, reason in enumerate(reasons):
        paths.append(
            {"operator": "a", "place": f"blocks.{index}", "form": "plain" if reason else "triton", "reason": reason}
        )
        paths.append({"operator": "b", "place": f"blocks.{index}", "form": "triton", "reason": ""})
    assert kernel_rows(paths) == [
        ("a", "blocks.0 to blocks.1", "triton", ""),
        ("a", "blocks.2", "plain", "197 keys"),
        ("a", "blocks.3", "triton", ""),
        ("a", "blocks.4 to blocks.5", "plain", "many heads"),
        ("b", "blocks.0 to blocks.5", "triton", ""),
    ]
    assert kernel_rows([]) == []
