"""The command line as people have it: on a terminal, in their shells, with names for their daemons; and
what programs rely on of it: JSON that is the messages of the API, exit codes, a quick start."""

import fcntl
import json
import os
import pathlib
import pty
import re
import resource
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

import harness
from harness import DEADLINE, EXAMPLE, SOURCE, cli
from google.protobuf import json_format
from penstock.v1 import admin_service_pb2, checkpoint_pb2, checkpoint_service_pb2, job_pb2

PENSTOCK = harness.BIN / "penstock"


def tearDownModule():
    harness.remove_stubs()


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, *command, environment=None, columns=100, rows=30):
        self.text = ""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            [str(word) for word in command], stdin=slave, stdout=slave, stderr=slave,
            env=environment, start_new_session=True)
        self.master, self.slave = master, slave

    def _read(self, seconds):
        if select.select([self.master], [], [], seconds)[0]:
            self.text += os.read(self.master, 65536).decode(errors="replace")

    def wait_for(self, pattern, after=0):
        """Reads on until what has come since the place `after` matches; the place behind it."""
        deadline = time.monotonic() + DEADLINE
        while not (found := re.search(pattern, self.text[after:])):
            assert time.monotonic() < deadline, f"no {pattern!r} in {self.text[after:]!r}"
            assert self.process.poll() is None or select.select([self.master], [], [], 0)[0], (
                f"ended without {pattern!r}: {self.text[after:]!r}")
            self._read(0.1)
        return after + found.end()

    def press(self, keys):
        os.write(self.master, keys.encode())

    def ended(self):
        """The exit code; what it had to say is in `text`."""
        deadline = time.monotonic() + DEADLINE
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"does not end: {self.text!r}"
            self._read(0.1)
        while select.select([self.master], [], [], 0)[0]:
            self._read(0)
        return self.process.returncode

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


class DaemonTest(harness.DaemonTest):
    def submit(self, job_id, steps, *arguments):
        cli(self.daemon, "submit", EXAMPLE / "job.yaml", "--job-id", job_id, "--set",
            f"schedule.max_steps={steps}", *arguments)

    def terminal(self, *arguments, **options):
        terminal = Terminal(PENSTOCK, "--endpoint", self.daemon.socket, *arguments, **options)
        self.addCleanup(terminal.close)
        return terminal


class TopTest(DaemonTest):
    def test_live_until_q_and_the_terminal_is_as_before(self):
        self.submit("long", 100_000)
        self.client.wait_for_step("jobs/long", 2)
        top = self.terminal("top", "--interval", "0.1")
        place = top.wait_for(r"long +running +\[[#.]{10}\] \d+/100000")
        top.wait_for(r"long +running", after=place)
        self.assertTrue(top.text.startswith("\x1b[?1049h"), top.text[:40])
        self.daemon.kill()
        place = top.wait_for(r"trying again: ", after=place)
        top.wait_for(r"long +running", after=place)  # the last page stays
        self.daemon.start()
        place = top.wait_for(r"\x1b\[Hpenstockd", after=place)
        top.press("q")
        self.assertEqual(top.ended(), 0)
        self.assertTrue(top.text.endswith("\x1b[?25h\x1b[?1049l"))
        self.assertEqual(termios.tcgetattr(top.slave), top.before)

    def test_ctrl_c_ends_it_too(self):
        top = self.terminal("top")
        top.wait_for("no jobs")
        top.process.send_signal(signal.SIGINT)
        self.assertEqual(top.ended(), 0)
        self.assertEqual(termios.tcgetattr(top.slave), top.before)

    def test_plain_elsewhere(self):
        self.submit("waits", 10, "--after", self.running())
        text = cli(self.daemon, "top").stdout
        self.assertNotIn("\x1b", text)
        self.assertRegex(text, r"waits +queued")
        self.assertLess(text.index("runs "), text.index("waits "))
        self.assertEqual(cli(self.daemon, "top", check=False,
                             endpoint=str(self.daemon.directory / "nobody")).returncode, 3)

    def running(self):
        self.submit("runs", 100_000)
        self.client.wait_for_step("jobs/runs", 1)
        return "runs"


class WatchTest(DaemonTest):
    def test_a_bar_that_survives_a_restart_of_the_daemon(self):
        self.submit("watched", 400)
        watch = self.terminal("watch", "watched")
        place = watch.wait_for(r"\[[#.]{12}\] step \d+/400 loss \d+\.\d+.*ETA")
        self.daemon.kill()
        place = watch.wait_for(r"lost the daemon", after=place)
        self.daemon.start()
        watch.wait_for(r"\[[#.]{12}\] step \d+/400", after=place)
        self.assertEqual(watch.ended(), 0, watch.text)
        self.assertIn("jobs/watched succeeded", watch.text)

    def test_lines_where_they_are_asked_for(self):
        self.submit("watched", 5)
        watch = self.terminal("watch", "watched", "--lines")
        self.assertEqual(watch.ended(), 0)
        self.assertIn("step 5 ", watch.text)
        self.assertNotIn("[#", watch.text)


class PlotTest(DaemonTest):
    def plot(self, **environment):
        terminal = self.terminal("metrics", "plotted", "--plot", environment={
            "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", **environment})
        self.assertEqual(terminal.ended(), 0)
        return terminal.text

    def test_unicode_and_colour_only_where_they_are_wanted(self):
        self.submit("plotted", 30, "--wait")
        braille = re.compile("[\u2801-\u28ff]")
        colored = self.plot()
        self.assertRegex(colored, braille)
        self.assertIn("\x1b[32mo", colored)
        self.assertRegex(self.plot(NO_COLOR="1"), braille)
        self.assertNotIn("\x1b", self.plot(NO_COLOR="1"))
        self.assertNotRegex(self.plot(LC_ALL="C"), braille)
        piped = cli(self.daemon, "metrics", "plotted", "--plot").stdout
        self.assertNotIn("\x1b", piped)
        self.assertIn("step 1 ", piped)


class NoColorTest(DaemonTest):
    def test_no_command_colours_against_the_wish(self):
        self.submit("plain", 5, "--wait")
        for words in (["jobs"], ["show", "plain"], ["metrics", "plain"], ["info"], ["logs", "plain"],
                      ["data", "inspect", EXAMPLE / "job.yaml"], ["--help"]):
            terminal = self.terminal(*words, environment=dict(os.environ, NO_COLOR="1"))
            self.assertEqual(terminal.ended(), 0, terminal.text)
            self.assertNotIn("\x1b", terminal.text, words)


class CompletionTest(DaemonTest):
    """Each shell itself says what it would offer."""

    def setUp(self):
        super().setUp()
        self.submit("alpha", 5, "--wait")
        self.environment = {"PATH": f"{harness.BIN}:{os.environ['PATH']}", "HOME": str(self.daemon.work),
                            "PENSTOCK_ENDPOINT": str(self.daemon.socket)}
        subprocess.run([PENSTOCK, "context", "add", "lab", "127.0.0.1:7070"], env=self.environment,
                       check=True)

    def offers(self, shell, line):
        words = line.split(" ")
        script = {
            "bash": "source <(penstock completion bash); COMP_WORDS=(\"$@\"); "
                    "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _penstock; printf '%s\\n' \"${COMPREPLY[@]}\"",
            "zsh": "compdef() { : }; compadd() { shift; print -rl -- \"$@\" }; _files() { print FILES }; "
                   "source <(penstock completion zsh); words=(\"$@\"); CURRENT=$#words; _penstock",
            "fish": "penstock completion fish | source; complete -C (string join ' ' -- $argv)",
        }[shell]
        command = ([shell, "--no-config", "-c", script, *words] if shell == "fish"
                   else [shell, "-c", script, shell, *words])
        result = subprocess.run(command, env=self.environment, capture_output=True, text=True,
                                timeout=DEADLINE)
        self.assertEqual(result.stderr, "", (shell, line))
        return {offered.split("\t")[0] for offered in result.stdout.splitlines()}

    def test_every_shell(self):
        for shell in ("bash", "zsh", "fish"):
            with self.subTest(shell=shell):
                self.assertLessEqual({"submit", "top", "context"}, self.offers(shell, "penstock "))
                self.assertIn("alpha", self.offers(shell, "penstock show "))
                self.assertIn("alpha", self.offers(shell, "penstock -q show "))
                self.assertIn("--follow", self.offers(shell, "penstock submit --f"))
                self.assertLessEqual({"add", "use", "list", "remove"},
                                     self.offers(shell, "penstock context "))
                self.assertIn("lab", self.offers(shell, "penstock context use "))
                self.assertLessEqual({"inspect", "build"}, self.offers(shell, "penstock data "))
                self.assertIn("json", self.offers(shell, "penstock -o "))

    def test_zsh_takes_it_from_fpath(self):
        script = subprocess.run([PENSTOCK, "completion", "zsh"], capture_output=True, text=True, check=True)
        (self.daemon.work / "_penstock").write_text(script.stdout)
        result = subprocess.run(
            ["zsh", "-f", "-c", "compadd() { shift; print -rl -- \"$@\" }; fpath=($HOME $fpath); "
             "autoload _penstock; words=(penstock context ''); CURRENT=3; _penstock"],
            env=self.environment, capture_output=True, text=True, timeout=DEADLINE)
        self.assertEqual((result.stdout.split(), result.stderr), (["add", "use", "remove", "list"], ""))

    def test_without_a_daemon_it_offers_no_ids_and_says_nothing(self):
        self.daemon.kill()
        for shell in ("bash", "zsh", "fish"):
            self.assertNotIn("alpha", self.offers(shell, "penstock show "))


class ContextTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="penstock-context-")
        self.addCleanup(directory.cleanup)
        self.config = pathlib.Path(directory.name)
        self.environment = {"XDG_CONFIG_HOME": str(self.config), "HOME": "/nonexistent"}

    def penstock(self, *words, code=0):
        result = subprocess.run([PENSTOCK, *words], env=self.environment, capture_output=True, text=True,
                                timeout=DEADLINE)
        self.assertEqual(result.returncode, code, result)
        return result.stdout + result.stderr

    def test_add_use_list_remove(self):
        self.assertNotIn("lab", self.penstock("context", "list"))
        self.penstock("context", "add", "lab", "127.0.0.1:1")
        self.penstock("context", "add", "mine", "/nonexistent/p.sock")
        self.assertRegex(self.penstock("context", "list"), r"\* +lab +127.0.0.1:1\n +mine ")
        path = self.config / "penstock/contexts.json"
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        self.assertEqual(path.parent.stat().st_mode & 0o777, 0o700)
        self.assertIn("context lab", self.penstock("jobs", code=3))
        self.penstock("context", "use", "mine")
        self.assertIn("/nonexistent/p.sock", self.penstock("jobs", code=3))
        self.penstock("context", "remove", "mine")
        self.assertNotIn("*", self.penstock("context", "list"))
        self.assertIn("default", self.penstock("jobs", code=3))

    def test_what_is_none_is_refused(self):
        self.assertIn("expected one of", self.penstock("context", "use", "lab", code=2))
        self.assertIn("expected one of", self.penstock("context", "remove", "lab", code=2))
        self.assertIn("expected", self.penstock("context", "add", "a/b", "/s", code=2))
        self.assertIn("expected", self.penstock("context", "add", "lab", "nonsense", code=2))
        self.assertFalse((self.config / "penstock").exists())
        (self.config / "penstock").mkdir()
        (self.config / "penstock/contexts.json").write_text("not json")
        self.assertIn("contexts.json", self.penstock("jobs", code=2))


class JsonTest(DaemonTest):
    """What -o json prints are messages of the API, without a key that they don't have; so proto/api_lock.txt
    covers it."""

    def parsed(self, message, *words):
        text = cli(self.daemon, *words, "-o", "json").stdout
        return json_format.Parse(text, message)

    def test_documents(self):
        self.submit("ended", 12, "--wait")
        self.assertEqual(self.parsed(job_pb2.ListJobsResponse(), "jobs").jobs[0].name, "jobs/ended")
        self.assertEqual(self.parsed(job_pb2.Job(), "show", "ended").name, "jobs/ended")
        self.assertEqual(len(self.parsed(job_pb2.ListJobMetricsResponse(), "metrics", "ended").points), 13)
        saved = self.parsed(checkpoint_service_pb2.ListCheckpointsResponse(), "checkpoints", "ended")
        name = saved.checkpoints[-1].name
        self.assertEqual(self.parsed(checkpoint_pb2.Checkpoint(), "show", name).name, name)
        self.assertTrue(self.parsed(checkpoint_pb2.Checkpoint(), "pin", name).pinned)
        self.assertFalse(self.parsed(checkpoint_pb2.Checkpoint(), "unpin", name).pinned)
        job = self.parsed(job_pb2.Job(), "submit", EXAMPLE / "job.yaml", "--set",
                          "schedule.max_steps=100000")
        planned = self.parsed(job_pb2.PlanJobResponse(), "plan", EXAMPLE / "job.yaml")
        self.assertGreater(planned.plan.host_peak_bytes, 0)
        for words in (["pause", job.name, "--wait"], ["resume", job.name], ["cancel", job.name, "--wait"]):
            self.assertEqual(self.parsed(job_pb2.Job(), *words).name, job.name)
        data = self.parsed(job_pb2.InspectDataResponse(), "data", "inspect", EXAMPLE / "job.yaml")
        self.assertGreater(data.tokens, 0)
        export = self.parsed(job_pb2.Job(), "export", name, self.daemon.work / "out")
        self.assertEqual(export.export.checkpoint, name)

    def test_lines(self):
        self.submit("ended", 5, "--wait")
        for words in (["watch", "ended"], ["logs", "ended"]):
            lines = cli(self.daemon, *words, "-o", "json").stdout.splitlines()
            self.assertNotEqual(lines, [])
            for line in lines:
                json_format.Parse(line, job_pb2.WatchJobsResponse())
        info, devices = cli(self.daemon, "info", "-o", "json").stdout.splitlines()
        json_format.Parse(info, admin_service_pb2.GetServerInfoResponse())
        json_format.Parse(devices, admin_service_pb2.ListDevicesResponse())
        info, devices, jobs = cli(self.daemon, "top", "-o", "json").stdout.splitlines()
        json_format.Parse(info, admin_service_pb2.GetServerInfoResponse())
        json_format.Parse(devices, admin_service_pb2.ListDevicesResponse())
        json_format.Parse(jobs, job_pb2.ListJobsResponse())
        error = cli(self.daemon, "show", "nobody", "-o", "json", check=False).stderr
        self.assertEqual(json.loads(error)["details"][0]["reason"], "JOB_NOT_FOUND")


class ProgramTest(unittest.TestCase):
    def test_the_manual_and_the_completion_have_the_same_commands(self):
        script = subprocess.run([PENSTOCK, "completion", "zsh"], capture_output=True, text=True, check=True)
        completed = set(re.search(r"''\) compadd -- (.*) ;;", script.stdout)[1].split())
        rows = re.findall(r"^\| (`[a-z].*?) \| ", (SOURCE / "docs/cli.md").read_text(), re.M)
        documented = {command for row in rows for command in re.findall(r"`([a-z-]+)", row)}
        self.assertEqual(completed, documented)

    def test_starting_costs_little(self):
        """At most four times what an interpreter takes that does nothing: 50 ms where that is 12 ms."""
        def cost(*command):
            def once():
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            return min(once() for _ in range(15))
        python = cost(sys.executable, "-I", "-S", "-c", "pass")
        penstock = cost(PENSTOCK, "--help")
        self.assertLess(penstock, 4 * python)

    def test_manual_pages(self):
        with tempfile.TemporaryDirectory() as directory:
            subprocess.run([sys.executable, "-B", SOURCE / "tools/generate_man_pages.py", directory, PENSTOCK,
                            harness.BIN / "penstockd"], check=True)
            pages = sorted(pathlib.Path(directory).rglob("penstock*"))
            names = {page.name for page in pages}
            self.assertLessEqual({"penstock.1", "penstock-submit.1", "penstock-context.1", "penstockd.8"},
                                 names)
            for page in pages:
                shown = subprocess.run(["groff", "-man", "-Tascii", "-P-cbou", "-ww", page],
                                       capture_output=True, text=True, check=True)
                self.assertEqual(shown.stderr, "", page.name)
                self.assertIn("SYNOPSIS", shown.stdout)
                if page.name == "penstock-submit.1":
                    self.assertIn("Check the job and print it as it would run", shown.stdout)


if __name__ == "__main__":
    unittest.main()
