#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks who includes whom in src/.

  check_includes.py SOURCE_DIR    every file of SOURCE_DIR/src against the two tables below; one line per violation
  check_includes.py --self-test   plants one violation of each kind in a scratch tree and expects it to be found

The folders are layers (docs/architecture.md has the picture): a file may include its own folder and those its row names.
An outside library may be named only where it belongs, so that each can be exchanged, or left out, in one place.
"""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import planted  # noqa: E402  (found by the line above)

# folder -> (layer, folders it may include). None: every folder of a smaller layer.
FOLDERS = {
    "core": (0, set()),
    "numerics": (1, {"core"}),
    "config": (1, {"core"}),
    "catalog": (2, {"core", "numerics", "config"}),
    "io": (2, {"core"}),
    "parallel": (2, {"core", "config"}),
    "kernels": (2, {"core", "numerics"}),
    "tokenizer": (2, {"core"}),
    "planner": (3, {"core", "config", "catalog"}),
    "convert": (3, None),
    "weights": (3, None),
    "model": (4, None),
    "engine": (5, None),
    "eval": (6, None),
    "bench": (6, None),
    "apps": (7, None),
}

# header (regular expression) -> files that may include it, as prefixes of paths below src/.
LIBRARIES = [
    (r"mpi\.h", ["parallel/"]),
    (r"nccl\.h", ["parallel/nccl"]),
    (r"hdf5(_hl)?\.h", ["io/"]),
    (r"xxhash\.h|xxh3\.h", ["io/"]),
    (r"openssl/.*", ["io/", "tokenizer/sha256"]),
    (r"png\.h|jpeglib\.h|turbojpeg\.h|webp/.*", ["io/"]),
    (r"hwy/.*", ["kernels/", "bench/machine_limits"]),
    (r"cublas.*\.h|cuda_bf16\.h|cuda_fp8\.h|cuda_fp4\.h|mma\.h", ["kernels/cuda/"]),
    (r"cuda_runtime(_api)?\.h", ["kernels/cuda/", "parallel/"]),
    (r"Kokkos_.*", ["core/kokkos_compat.hpp"]),
    (r"nlohmann/.*", ["core/json", "io/"]),
    (r"spdlog/.*", ["core/log.cpp"]),
    (r"CLI/.*", ["apps/"]),
    (r"pcre2\.h|utf8proc\.h|unicode/.*", ["tokenizer/"]),
]

# Own headers that bring a large library with them: who may pay for it.
COSTLY = {"core/kokkos_compat.hpp": {"core", "parallel", "kernels", "weights", "model", "engine", "eval", "bench", "apps"}}

# The JSON library takes a NUL byte for the end of its input: what comes from outside goes through JsonSax::run.
JSON_LEXER = re.compile(r"\bsax_parse\(|\b[jJ]son::(parse|accept)\(")
JSON_LEXER_MAY = {"core/json_sax.hpp": "refuses NUL first", "core/json.cpp": "reads what it wrote", "eval/openai_request.cpp": "reads constants"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
SOURCES = {".hpp", ".cpp", ".h", ".cu", ".inc"}


def check_own(folder, target):
    """A quoted include must be spelled from src/ on and stay within what the folder's row allows."""
    other = target.split("/")[0]
    if "/" not in target or other not in FOLDERS:
        return f'includes "{target}": own headers are spelled from src/ on, "folder/file.hpp"'
    layer, allowed = FOLDERS[folder]
    if other != folder and (other not in allowed if allowed is not None else FOLDERS[other][0] >= layer):
        may = ", ".join(sorted(allowed)) if allowed is not None else f"folders below layer {layer}"
        return f'includes "{target}": {folder} may use only {may or "nothing"}'
    if target in COSTLY and folder not in COSTLY[target]:
        return f'includes "{target}": {folder} runs no kernels'
    return None


def check_library(name, target):
    """An outside header must be included where its library belongs."""
    for pattern, places in LIBRARIES:
        if re.fullmatch(pattern, target) and not any(name.startswith(place) for place in places):
            return f"includes <{target}>: only {', '.join(places)} may"
    return None


def check_file(source, path):
    name = path.relative_to(source).as_posix()
    folder = name.split("/")[0]
    text = path.read_text(encoding="utf-8")
    if folder not in FOLDERS:
        return [f"src/{name}: folder {folder} has no row in tests/layering/check_includes.py"]
    found = []
    if not text.startswith("// SPDX-License-Identifier: Apache-2.0\n"):
        found.append("first line is not the SPDX line")
    # Highway includes *-inl.hpp once per instruction set.
    if path.suffix == ".hpp" and not name.endswith("-inl.hpp") and not re.search(r"^#pragma once$", text, re.MULTILINE):
        found.append("no #pragma once")
    if JSON_LEXER.search(text) and name not in JSON_LEXER_MAY:
        found.append("calls the JSON library's parser: texts are read by core/json.hpp or a JsonSax")
    for mark, target in INCLUDE.findall(text):
        own = mark == '"' and not target.startswith("hwy/")
        problem = check_own(folder, target) if own else check_library(name, target)
        if problem:
            found.append(problem)
    return [f"src/{name}: {problem}" for problem in found]


def check_tree(root):
    source = pathlib.Path(root) / "src"
    files = sorted(p for p in source.rglob("*") if p.suffix in SOURCES and p.is_file())
    if not files:
        return [f"{source}: no source file found"], 0
    return [problem for path in files for problem in check_file(source, path)], len(files)


SPDX = "// SPDX-License-Identifier: Apache-2.0\n"
PLANTED = {  # file -> (text, words that must be in the one problem found; None: clean)
    "core/fine.hpp": (SPDX + "#pragma once\n#include <string>\n", None),
    "model/fine.cpp": (SPDX + '#include "kernels/linear.hpp"\n#include "core/kokkos_compat.hpp"\n', None),
    "parallel/fine.cpp": (SPDX + "#include <mpi.h>\n", None),
    "core/upward.cpp": (SPDX + '#include "config/model_config.hpp"\n', "core may use only nothing"),
    "kernels/sideways.cpp": (SPDX + '#include "parallel/session.hpp"\n', "kernels may use only core, numerics"),
    "weights/same_layer.cpp": (SPDX + '#include "convert/convert.hpp"\n', "below layer 3"),
    "model/library.cpp": (SPDX + "#  include <mpi.h>\n", "only parallel/ may"),
    "kernels/nccl.cpp": (SPDX + "#include <nccl.h>\n", "only parallel/nccl may"),
    "io/costly.cpp": (SPDX + '#include "core/kokkos_compat.hpp"\n', "io runs no kernels"),
    "io/relative.cpp": (SPDX + '#include "file.hpp"\n', "spelled from src/ on"),
    "io/licence.cpp": ("#include <string>\n", "SPDX"),
    "io/guard.hpp": (SPDX + "#include <string>\n", "#pragma once"),
    "novel/file.cpp": (SPDX, "no row"),
    "core/json.cpp": (SPDX + "auto a = Json::parse(text);\n", None),
    "eval/own_parser.cpp": (SPDX + "auto a = nlohmann::json::parse(text);\n", "JSON library's parser"),
    "io/own_sax.cpp": (SPDX + "bool a = Json::sax_parse(begin, end, &reader);\n", "JSON library's parser"),
}


if __name__ == "__main__":
    planted.main(__doc__, PLANTED, check_tree, below="src")
