"""The gallery: a page for each example, from the easiest to the hardest, with its prose, code, output and figure.

The docstring of a script is the question and what the page begins with; a comment that has lines of its own is prose
between pieces of code. Output and figure are those of ``make examples``.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).resolve().parents[2]

# Grade, what a reader of it should know, and its examples in the order in which they are read.
GRADES = (
    ("First steps", "A fitted classifier, or nothing at all.", ("scikit_learn_error", "toy")),
    (
        "Your model in use",
        "You have labelled validation data, and new data arrive.",
        ("few_labels", "monitor_pipeline", "compare_estimators"),
    ),
    (
        "Theory and kernels",
        "You know what a row space is, or want the tangent kernel of a network.",
        ("bound", "tangent_kernel", "kernels_of_networks"),
    ),
    ("The paper's method", "You have a network and the weights it was trained from.", ("projnorm_of_classifier",)),
)
NAMES = tuple(chain.from_iterable(names for _, _, names in GRADES))
THREE_PANELS = ("toy",)  # whose thumbnails show the first panel
_EXTRAS = {"transformers": "'.[text]'", "torch": "'.[nn]'", "sklearn": "scikit-learn"}


@dataclass(frozen=True)
class Example:
    """A script of ``examples``, taken apart.

    Attributes:
        name: File name without its ending.
        question: First line of the docstring.
        introduction: The rest of the docstring.
        needs: What has to be installed beside the package, for ``pip``.
        pieces: Prose, code, prose, code and so on; the first is prose, perhaps empty.
        output: What the script prints.
    """

    name: str
    question: str
    introduction: str
    needs: str
    pieces: tuple[str, ...]
    output: str


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the gallery and the page of every example."""
    from mkdocs.structure.files import File  # the tests read the examples where mkdocs is not installed

    examples = [read_example(name) for name in NAMES]
    files.append(File.generated(config, "examples.md", content=gallery_page(examples)))
    for number, example in enumerate(examples):
        following = examples[number + 1] if number + 1 < len(examples) else None
        files.append(File.generated(config, f"examples/{example.name}.md", content=example_page(example, following)))
    return files


def read_example(name: str) -> Example:
    """Take the script of an example apart."""
    source = (ROOT / "examples" / f"{name}.py").read_text("utf-8")
    tree = ast.parse(source)
    question, _, introduction = (ast.get_docstring(tree) or "").partition("\n")
    needs = next(
        (extra for module, extra in _EXTRAS.items() if re.search(rf"^(import|from) {module}\b", source, re.M)), ""
    )
    code = source.partition('"""\n\n')[2]
    pieces = re.split(r"((?:^# .*\n)+)", code, flags=re.MULTILINE)
    prose = (
        re.sub(r"^# ", "", piece, flags=re.MULTILINE) if number % 2 else piece for number, piece in enumerate(pieces)
    )
    output = (ROOT / "docs" / "images" / f"{name}.txt").read_text("utf-8")
    return Example(
        name, question, introduction.strip(), needs, ("", *(piece.strip() for piece in prose)), output.strip()
    )


def gallery_page(examples: list[Example]) -> str:
    """The examples as pictures with their questions, grade by grade."""
    text = [
        "# Examples\n",
        "Nine short scripts, each of which answers one question, from the easiest to the hardest.",
        "`python examples/NAME.py FOLDER` prints the answer and draws a figure into `FOLDER`.\n",
    ]
    by_name = {example.name: example for example in examples}
    for grade, prerequisite, names in GRADES:
        text += [f"## {grade}\n", f"{prerequisite}\n", '<div class="gallery" markdown>\n']
        for name in names:
            question = by_name[name].question
            crop = "{ .first-of-three }" if name in THREE_PANELS else ""
            text.append(f"[![{question}](images/{name}.png){crop}<span>{question}</span>](examples/{name}.md)\n")
        text.append("</div>\n")
    return "\n".join(text)


def example_page(example: Example, following: Example | None) -> str:
    """The page of one example."""
    grade = next(grade for grade, _, names in GRADES if example.name in names)
    needs = f", needs `pip install -c constraints.txt {example.needs}`" if example.needs else ""
    text = [
        f"# {example.question}\n",
        f"{example.introduction}\n",
        f"*{grade}{needs}. The whole script is `examples/{example.name}.py`; it takes a folder for the figure.*\n",
    ]
    for prose, code in zip(example.pieces[::2], example.pieces[1::2], strict=True):
        text += [f"{prose}\n", f"```python\n{code}\n```\n"]
    text += ["## What it prints\n", f"``` {{ .text .wraps }}\n{example.output}\n```\n"]
    text += [f"![The figure of the example](../images/{example.name}.png)\n"]
    if following:
        text.append(f"Next: [{following.question}]({following.name}.md)\n")
    return "\n".join(text)
