"""What a daemon signs, and what verify, diff and key say of it where no daemon runs."""

import hashlib
import json
import os
import pathlib
import shutil
import stat
import subprocess
import unittest

import harness
from harness import Client, cli, create, example_spec, job_pb2
from penstock.v1 import admin_service_pb2, checkpoint_service_pb2


def tearDownModule():
    harness.remove_stubs()


def flip_bit(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


class ProvenanceTest(harness.DaemonTest):
    def info(self):
        return self.client.admin.GetServerInfo(admin_service_pb2.GetServerInfoRequest())

    def offline(self, *words):
        """Without any daemon to find."""
        return subprocess.run([harness.BIN / "penstock", *map(str, words)], capture_output=True,
                              text=True, timeout=harness.DEADLINE,
                              env={"PATH": os.environ["PATH"], "HOME": "/nowhere"})

    def checkpoints(self, name):
        return self.client.checkpoints.ListCheckpoints(
            checkpoint_service_pb2.ListCheckpointsRequest(parent=name)).checkpoints

    def train(self, spec, **fields):
        end = self.client.wait(create(self.client, spec, **fields).name)
        self.assertEqual(end.state, job_pb2.JOB_STATE_SUCCEEDED, end)
        return end.name

    def test_a_chain_of_jobs_is_proven_and_a_change_in_it_found(self):
        spec = example_spec(max_steps=12)
        spec.checkpoints.every_steps = 6
        name = self.train(spec, job_id="first")
        fork = example_spec(max_steps=16)
        fork.start_checkpoint = f"{name}/checkpoints/12"
        forked = self.train(fork, job_id="second")
        exported = self.daemon.work / "exported"
        result = cli(self.daemon, "export", forked, str(exported), "--wait")
        self.assertEqual(result.returncode, 0, result.stderr)

        key = self.info().signing_public_key
        self.assertRegex(key, "^[0-9a-f]{64}$")
        shown = cli(self.daemon, "key", "show")
        self.assertEqual(shown.stdout, key + "\n")
        key_file = self.daemon.state / "signing.key"
        self.assertEqual(stat.S_IMODE(key_file.stat().st_mode), 0o600)
        self.assertEqual(self.offline("key", "show", key_file).stdout, key + "\n")

        saved = {c.step: c for c in self.checkpoints(name)}
        last = pathlib.Path(saved[12].directory)
        for checkpoint in saved.values():
            text = pathlib.Path(checkpoint.directory, "provenance.json").read_bytes()
            self.assertEqual(checkpoint.provenance_sha256, hashlib.sha256(text).hexdigest())
            said = json.loads(text)
            self.assertEqual((said["job"], said["step"], said["attempt"]),
                             (name, checkpoint.step, 1))
            self.assertEqual(json.loads(said["job_spec"]["text"])["schedule"]["maxSteps"], "12")

        self.daemon.terminate()
        checked = self.offline("verify", exported, "--key", key, "-o", "json")
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
        report = json.loads(checked.stdout)
        self.assertEqual(report["public_key"], key)
        self.assertEqual({f["path"] for f in report["findings"] if f["what"] == "files"},
                         {str(exported), str(self.daemon.state / "jobs/second/checkpoints/16"),
                          str(last)}, "down to the first job")
        self.assertFalse([f for f in report["findings"] if f["verdict"] == "wrong"])
        people = self.offline("verify", last)
        self.assertEqual(people.returncode, 0)
        self.assertIn("NOT PROVEN  whose key", people.stdout)
        self.assertIn("nothing is wrong", people.stdout)

        moved = self.offline("diff", saved[6].directory, last)
        self.assertEqual(moved.returncode, 0, moved.stderr)
        self.assertIn("no anomalies", moved.stdout)
        numbers = json.loads(self.offline("diff", last, exported, "-o", "json").stdout)
        self.assertGreater(numbers["change_norm"], 0)
        self.assertEqual(numbers["only_before"] + numbers["only_after"], [])

        flip_bit(last / "v-00001.safetensors", -1)
        for path in (last, exported):
            broken = self.offline("verify", path, "--key", key)
            self.assertEqual(broken.returncode, 1, broken.stdout)
            self.assertIn("v-00001.safetensors has SHA-256", broken.stdout)
        flip_bit(last / "v-00001.safetensors", -1)
        self.assertEqual(self.offline("verify", last, "--key", "0" * 64).returncode, 1)
        self.assertEqual(self.offline("verify", last, "--key", "nonsense").returncode, 2)
        self.assertEqual(self.offline("verify", self.daemon.work).returncode, 1)

    def test_the_key_outlives_the_daemon_and_openssl_believes_it(self):
        name = self.train(example_spec(max_steps=2), job_id="short")
        directory = pathlib.Path(self.checkpoints(name)[0].directory)
        key = self.info().signing_public_key
        self.daemon.kill()
        self.daemon.start()
        self.client.close()
        self.client = Client(self.daemon.target)
        self.assertEqual(self.info().signing_public_key, key)
        if shutil.which("openssl") is None:
            return
        # The DER form of an Ed25519 public key is this and the key.
        der = self.daemon.work / "key.der"
        der.write_bytes(bytes.fromhex("302a300506032b6570032100" + key))
        command = ["openssl", "pkeyutl", "-verify", "-pubin", "-keyform", "DER", "-inkey", der,
                   "-rawin", "-in", directory / "provenance.json", "-sigfile",
                   directory / "provenance.sig"]
        checked = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)

    def test_a_key_that_others_can_read_stops_the_daemon(self):
        self.daemon.terminate()
        (self.daemon.state / "signing.key").chmod(0o644)
        ended = subprocess.run([self.daemon.program, "--state-directory", self.daemon.state],
                               capture_output=True, text=True, timeout=harness.DEADLINE)
        self.assertNotEqual(ended.returncode, 0)
        self.assertIn("chmod 0600", ended.stdout + ended.stderr)


if __name__ == "__main__":
    unittest.main()
