"""Starts that cannot be, and clients of other versions: each has a reason and a way out."""

import concurrent.futures
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

import grpc

import harness
from harness import BIN, Client, Daemon, cli, create, error_of, example_spec


def tearDownModule():
    harness.remove_stubs()


class StartTest(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(self.daemon.close)

    def test_a_full_disk_is_named_and_nothing_is_lost_by_it(self):
        """On a file system of its own, which root may make, or everybody where user namespaces are."""
        isolated = ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--map-root-user"])
        able = subprocess.run([*isolated, "mount", "-t", "tmpfs", "tmpfs", self.daemon.work],
                              capture_output=True, text=True)
        if able.returncode != 0:
            self.skipTest(f"no file system to fill: {able.stderr}")
        # Prints of each start its exit code and the last line it says; one that serves is ended.
        script = """
            mount -t tmpfs -o size=1m,mode=700 tmpfs "$1" && cd "$1" && shift
            fill() { cat /dev/zero >fill 2>/dev/null; }
            start() {
              local name=$1 text code
              shift
              text=$(timeout 5 "$@" --state-directory "$PWD/state" 2>&1)
              code=$?
              echo "$name $code ${text##*$'\\n'}"
            }
            fill; start empty "$@"
            rm fill; start room "$@"
            sum=$(sha256sum state/jobs.db)
            fill; start full "$@"
            [ "$sum" = "$(sha256sum state/jobs.db)" ] && echo same
            rm fill; start again "$@"
        """
        result = subprocess.run(
            [*isolated, "bash", "-c", script, "bash", self.daemon.work, BIN / "penstockd",
             "--no-calibration", "--allowed-root", self.daemon.directory],
            capture_output=True, text=True, timeout=harness.DEADLINE)
        lines = result.stdout.splitlines()
        self.assertEqual([line.split()[0] for line in lines],
                         ["empty", "room", "full", "same", "again"], result)
        for line in (lines[0], lines[2]):
            self.assertEqual(line.split()[1], "70", "it may get better, so it is worth another try")
            self.assertIn("No space left on device (DISK_INSUFFICIENT)", line)
            self.assertIn("/state", line)
        for line in (lines[1], lines[4]):
            self.assertEqual(line.split()[1], "124", "it served until it was stopped")

    def test_a_taken_port_and_a_second_daemon_are_named(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            result = subprocess.run(
                [BIN / "penstockd", "--state-directory", self.daemon.state, "--allowed-root",
                 self.daemon.work, "--listen", address],
                capture_output=True, text=True, timeout=harness.DEADLINE)
        self.assertEqual(result.returncode, 78, result)
        self.assertIn(address, result.stderr)
        self.assertIn("(CONFIG_INVALID)", result.stderr)
        self.daemon.start()
        result = subprocess.run(
            [BIN / "penstockd", "--state-directory", self.daemon.state, "--allowed-root",
             self.daemon.work], capture_output=True, text=True, timeout=harness.DEADLINE)
        self.assertEqual(result.returncode, 78, result)
        self.assertIn("(LOCK_HELD)", result.stderr)
        self.assertIn(f"pid={self.daemon.process.pid} ", result.stderr)

    def test_the_endpoint_file_says_where_it_is_served(self):
        self.daemon.start()
        endpoint = json.loads((self.daemon.state / "endpoint.json").read_text())
        self.assertEqual(endpoint["host"], socket.gethostname())
        self.assertEqual(endpoint["pid"], self.daemon.process.pid)
        self.daemon.terminate()
        self.assertFalse((self.daemon.state / "endpoint.json").exists())

    def test_root_is_told_what_it_is(self):
        self.daemon.start()
        self.assertEqual("running as root" in self.daemon.log_text(), os.geteuid() == 0)

    def test_a_signal_at_any_moment_is_a_stop_in_good_order(self):
        """Threads of libraries, such as OpenBLAS', block no signal: one that comes while the daemon does
        not wait for it would end the process by way of them."""
        endpoint = self.daemon.state / "endpoint.json"
        for number in (signal.SIGTERM, signal.SIGUSR1) * 5:
            process = subprocess.Popen(
                [BIN / "penstockd", "--state-directory", self.daemon.state, "--allowed-root",
                 self.daemon.work, "--no-calibration"], stderr=self.daemon.log)
            self.addCleanup(process.kill)
            deadline = time.monotonic() + harness.DEADLINE
            while not endpoint.exists():
                self.assertLess(time.monotonic(), deadline)
            for _ in range(3):
                process.send_signal(number)
            self.assertEqual(process.wait(timeout=harness.DEADLINE), 0, self.daemon.log_text())
            self.assertFalse(endpoint.exists())

    def test_readiness_goes_off_while_the_daemon_drains(self):
        self.daemon.start("--on-terminate", "drain")
        client = Client(self.daemon.target)
        self.addCleanup(client.close)
        self.assertEqual(cli(self.daemon, "info", "--ready").returncode, 0)
        name = create(client, example_spec(max_steps=100_000)).name
        client.wait_for_step(name, 1)
        self.daemon.process.terminate()
        deadline = time.monotonic() + harness.DEADLINE
        while cli(self.daemon, "info", "--ready", check=False).returncode == 0:
            self.assertLess(time.monotonic(), deadline)
        self.assertEqual(cli(self.daemon, "info", "--ready", check=False).returncode, 75)
        self.assertEqual(cli(self.daemon, "info").returncode, 0, "it is alive")
        self.daemon.process.send_signal(signal.SIGINT)
        self.assertEqual(self.daemon.process.wait(timeout=harness.DEADLINE), 75)


class VersionTest(unittest.TestCase):
    def test_a_field_of_a_newer_client_is_refused_and_not_ignored(self):
        daemon = Daemon()
        self.addCleanup(daemon.close)
        daemon.start()
        client = Client(daemon.target)
        self.addCleanup(client.close)
        spec = example_spec()
        spec.optimizer.MergeFromString(bytes([0xFA, 0xFF, 0x03, 0x01, 0x78]))  # field 8191: "x"
        with self.assertRaises(grpc.RpcError) as raised:
            create(client, spec)
        _, info, message = error_of(raised.exception)
        self.assertEqual(info.reason, "SPEC_INVALID")
        self.assertIn("optimizer: found the unknown field number 8191", message)
        self.assertIn("newer client", message)

    def test_a_call_that_an_older_daemon_lacks_says_so(self):
        directory = tempfile.mkdtemp(prefix="penstock-old-", dir="/tmp")
        self.addCleanup(shutil.rmtree, directory)
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
        server.add_insecure_port(f"unix:{directory}/socket")
        server.start()
        self.addCleanup(server.stop, None)
        result = cli(None, "jobs", endpoint=f"{directory}/socket", check=False)
        self.assertEqual(result.returncode, 78, result)
        self.assertIn("FEATURE_UNSUPPORTED", result.stderr)
        self.assertIn("of another version than this penstock", result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
