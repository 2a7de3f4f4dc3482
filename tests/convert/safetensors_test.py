#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints written by the safetensors package, shards read by h5py, and back: safetensors_test.py BATHYS CHECKOUT."""

import ctypes
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy as np
import safetensors

PROGRAM, ROOT = sys.argv[1], pathlib.Path(sys.argv[2])
NANO = ROOT / "inputs" / "models" / "nano"
# The names by which the package takes the dtypes of the release.
DTYPES = {"I8": "int8", "F8_E4M3": "float8_e4m3fn", "F8_E8M0": "float8_e8m0fnu", "BF16": "bfloat16", "F32": "float32"}


def read_checkpoint(folder):
    """Every tensor of a folder as the package reads it: name -> (dtype, shape, bytes)."""
    tensors = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        for name, tensor in safetensors.deserialize(path.read_bytes()):
            tensors[name] = (tensor["dtype"], list(tensor["shape"]), bytes(tensor["data"]))
    return tensors


def write_file(path, tensors, metadata=None):
    buffers = {name: ctypes.create_string_buffer(data, len(data)) for name, (_, _, data) in tensors.items()}
    specs = {name: safetensors.TensorSpec(dtype=DTYPES[dtype], shape=shape, data_ptr=ctypes.addressof(buffers[name]), data_len=len(data))
             for name, (dtype, shape, data) in tensors.items()}
    safetensors.serialize_file(specs, str(path), metadata)


def write_checkpoint(folder, tensors, n_files, index, seed):
    """Tensors in an order of chance over n_files files, with an index or to be found by their ending."""
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(NANO / name, folder)
    names = sorted(tensors)
    random.Random(seed).shuffle(names)
    weight_map = {}
    for number in range(n_files):
        file = f"part-{number}.safetensors"
        mine = names[number::n_files]
        write_file(folder / file, {name: tensors[name] for name in mine}, {"format": "pt"})
        weight_map.update(dict.fromkeys(mine, file))
    if index:
        total = sum(len(data) for _, _, data in tensors.values())
        text = json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map})
        (folder / "model.safetensors.index.json").write_text(text, encoding="utf-8")


def run(*arguments, ranks=1):
    launcher = ["mpirun", "-n", str(ranks)] if ranks > 1 else []
    done = subprocess.run([*launcher, PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False)
    return done


class Safetensors(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="bathys-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.tensors = read_checkpoint(NANO)
        self.assertEqual({dtype for dtype, _, _ in self.tensors.values()}, set(DTYPES))

    def good(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def check_shards(self, folder):
        """Every tensor in the shards, read by h5py, has the bytes that the package read."""
        with h5py.File(folder / "index.h5") as file:
            index = json.loads(file["index"][()].tobytes())
            self.assertEqual(file["config.json"][()].tobytes(), (NANO / "config.json").read_bytes())
        seen = 0
        for dataset in index["datasets"]:
            with h5py.File(folder / dataset["file"]) as file:
                data = file[dataset["name"]]
                self.assertEqual(data.attrs["dtype"].decode(), dataset["dtype"])
                self.assertEqual(data.id.get_offset(), dataset["offset"])
                values = data[()]
            if ".experts." in dataset["name"]:
                before, after = dataset["name"].split(".experts.")
                members = [f"{before}.experts.{expert}.{after}" for expert in range(values.shape[0])]
            else:
                members, values = [dataset["name"]], values[np.newaxis]
            for name, value in zip(members, values, strict=True):
                dtype, shape, data = self.tensors[name]
                self.assertEqual((dataset["dtype"], list(value.shape)), (dtype, shape), name)
                self.assertTrue(value.tobytes() == data, name)
                seen += 1
        self.assertEqual(seen, len(self.tensors))

    def test_what_the_package_writes_converts_byte_for_byte(self):
        contents = set()
        for number, (n_files, index, ranks) in enumerate([(1, False, 1), (5, True, 2), (7, False, 4)]):
            with self.subTest(files=n_files, index=index, ranks=ranks):
                source, shards = self.folder / f"ck{number}", self.folder / f"shards{number}"
                write_checkpoint(source, self.tensors, n_files, index, number)
                self.good(run("convert", source, shards, ranks=ranks))
                self.check_shards(shards)
                self.good(run("verify", shards, "--checkpoint", source, ranks=ranks))
                contents.add(json.loads(self.good(run("inspect", shards, "--json")))["content_id"])
        self.good(run("convert", NANO, self.folder / "nano"))
        contents.add(json.loads(self.good(run("inspect", self.folder / "nano", "--json")))["content_id"])
        self.assertEqual(len(contents), 1)  # one content, whatever the filing; tests/apps compares its numbers with the reference's

    def test_the_package_reads_what_is_written_back(self):
        self.good(run("convert", NANO, self.folder / "shards"))
        for ranks in (1, 3):
            back = self.folder / f"back{ranks}"
            self.good(run("convert", self.folder / "shards", back, "--to", "safetensors", ranks=ranks))
            self.assertEqual(read_checkpoint(back), self.tensors)
            index = json.loads((back / "model.safetensors.index.json").read_text(encoding="utf-8"))
            self.assertEqual(set(index["weight_map"]), set(self.tensors))
            for name, file in index["weight_map"].items():
                self.assertTrue((back / file).is_file(), name)

    def test_the_package_reads_a_synthetic_checkpoint(self):
        self.good(run("synth", NANO / "config.json", self.folder / "ck", "--to", "safetensors", "--seed", "3"))
        tensors = read_checkpoint(self.folder / "ck")
        shapes = {name: (dtype, shape) for name, (dtype, shape, _) in self.tensors.items()}
        self.assertEqual({name: (dtype, shape) for name, (dtype, shape, _) in tensors.items()}, shapes)
        self.tensors = tensors
        self.good(run("synth", NANO / "config.json", self.folder / "shards", "--seed", "3"))
        config = (self.folder / "ck" / "config.json").read_bytes()
        self.assertEqual(config, (NANO / "config.json").read_bytes())
        self.check_shards(self.folder / "shards")

    def test_other_types_than_the_releases_are_refused_by_name(self):
        dtype, shape, data = self.tensors["layers.0.ffn.experts.3.w1.weight"]
        self.assertEqual(dtype, "I8")
        cases = {
            "layers.0.ffn.experts.3.w1.weight": ("F8_E4M3", [shape[0], shape[1] * 2], data * 2),  # FP8 where FP4 belongs
            "layers.0.attn.wkv.scale": ("F32", [2, 4], bytes(32)),  # scales with a mantissa
            "layers.1.attn.wkv.scale": ("F8_E8M0", [1, 1], b"\x7f"),  # of 128 x 128 blocks
        }
        for number, (name, tensor) in enumerate(cases.items()):
            source = self.folder / f"ck{number}"
            write_checkpoint(source, {**self.tensors, name: tensor}, 2, True, 0)
            done = run("convert", source, self.folder / f"shards{number}", ranks=2)
            self.assertEqual(done.returncode, 66, done.stderr)
            causes = [line for line in done.stderr.splitlines() if line.startswith("bathys: error: ")]
            self.assertEqual(len(causes), 1, done.stderr)
            self.assertIn(name, causes[0])
            self.assertFalse((self.folder / f"shards{number}").exists())


if __name__ == "__main__":
    os.environ.setdefault("OMPI_MCA_hwloc_base_binding_policy", "none")
    unittest.main(argv=sys.argv[:1])
