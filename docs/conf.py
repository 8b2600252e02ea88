"""The settings of the site that `make docs` builds from these pages."""

import argparse
import os
import re
from typing import ClassVar

import sphinx.pycode.parser
from docutils import nodes
from docutils.parsers.rst import Directive
from pygments import token
from pygments.lexer import RegexLexer

import explore
from explore._cli.parser import build_parser

# A comment beside an attribute is its documentation, as Sphinx has it for those that begin with #:
sphinx.pycode.parser.comment_re = re.compile(r"^\s*#:? ?(?!type:|fmt:|noqa)(.*)\r?\n?$")

CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)(?=(\w?))")

project = "explore"
author = "The explore developers"
copyright = author
version = release = explore.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = f"explore {version}"
toc_object_entries_show_parents = "hide"

myst_heading_anchors = 3  # as on GitHub, so that links work in both places
myst_enable_extensions = ["colon_fence"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100


class GinLexer(RegexLexer):
    """Colours for gin files."""

    name = "gin"
    tokens: ClassVar = {
        "root": [
            (r"#.*$", token.Comment),
            (r"^(include|import)\b", token.Keyword),
            (r"'[^'\n]*'|\"[^\"\n]*\"", token.String),
            (r"[@%][\w./]+", token.Name.Function),
            (r"\b(True|False|None)\b", token.Keyword.Constant),
            (r"\b[\d.]+(e-?\d+)?\b", token.Number),
            (r"[\w./]+", token.Name),
            (r"\s+", token.Whitespace),
            (r".", token.Punctuation),
        ]
    }


class CommandHelp(Directive):
    """What `explore COMMAND --help` prints, for every command."""

    def run(self):
        os.environ["COLUMNS"] = "88"
        parser = build_parser(["--help"])
        [commands] = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
        shown = []
        for name, command in commands.choices.items():
            shown.append(nodes.rubric(text=f"explore {name}"))
            shown.append(nodes.literal_block(text=command.format_help(), language="none"))
        return shown


def to_restructured_text(app, what, name, obj, options, lines):
    """Docstrings are Markdown: `code` in single backticks, and code blocks that are indented after an empty line."""
    paragraphs = re.split(r"(\n\n(?= {4}).*?(?=\n *\n {0,3}\S|\Z))", "\n".join(lines), flags=re.DOTALL)
    for number, text in enumerate(paragraphs):
        code = number % 2
        paragraphs[number] = f"\n\n.. code-block:: python{text}" if code else CODE.sub(_literal, text)
    lines[:] = "".join(paragraphs).split("\n")


def _literal(match):
    text = " ".join(match[1].split())
    return f"``{text}``" + ("\\ " if match[2] else "")


def setup(app):
    app.add_lexer("gin", GinLexer)
    app.add_directive("command-help", CommandHelp)
    app.connect("autodoc-process-docstring", to_restructured_text, priority=400)  # before napoleon reads it
