"""The container image at work under podman: alone, and as the pods of deploy/kubernetes. Run it by
tools/test_image, which builds the image."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest

import yaml

IMAGE = os.environ["PENSTOCK_IMAGE"]
SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
DEADLINE = 120  # seconds; only a hang reaches it
MEMORY = 2 << 30
# Without end, and with checkpoints at its stops only.
ENDLESS = ["--set", "schedule.max_steps=10000000", "--set", "checkpoints.every_steps=0",
           "--set", "evaluation.every_steps=0"]


def podman(*words, code=0, timeout=DEADLINE):
    """What it says on stdout."""
    result = subprocess.run(["podman", *map(str, words)], capture_output=True, text=True, timeout=timeout)
    if code is not None and result.returncode != code:
        raise AssertionError(f"podman {' '.join(map(str, words))} exited with {result.returncode}, not "
                             f"{code}:\n{result.stdout}{result.stderr}")
    return result.stdout


def wait_for(condition, message):
    """What the condition gives, once it is something."""
    deadline = time.monotonic() + DEADLINE
    while not (found := condition()):
        if time.monotonic() >= deadline:
            raise AssertionError(message())
        time.sleep(0.2)
    return found


class Container:
    """One that runs until it is stopped, without a network and with the memory of MEMORY."""

    def __init__(self, case, *options, command=()):
        self.id = podman("run", "--detach", "--network", "none", "--memory", MEMORY, *options, IMAGE,
                         *command).strip()
        case.addCleanup(podman, "rm", "--force", "--ignore", self.id)

    def inside(self, *words, code=0):
        return podman("exec", self.id, *words, code=code)

    def json(self, *words):
        """The first reply that the command prints; `info` has the devices in a second one."""
        return json.JSONDecoder().raw_decode(self.inside("penstock", "-o", "json", *words))[0]

    def log(self):
        return subprocess.run(["podman", "logs", self.id], capture_output=True, text=True).stderr

    def answers(self, *command):
        """Waits until a command in the container exits with 0."""
        def once():
            assert self.running(), f"the container has ended:\n{self.log()}"
            return subprocess.run(["podman", "exec", self.id, *command], capture_output=True).returncode == 0
        wait_for(once, lambda: f"{command} does not succeed:\n{self.log()}")

    def running(self):
        return podman("inspect", "--format", "{{.State.Running}}", self.id).strip() == "true"

    def wait(self):
        return int(podman("wait", self.id))

    def stop(self, seconds):
        """SIGTERM, and SIGKILL after these seconds, as `docker stop` and the kubelet do; the exit code."""
        podman("stop", "--time", seconds, self.id, timeout=seconds + DEADLINE)
        return self.wait()

    def wait_for_step(self, job, step):
        def found():
            shown = self.json("show", job)
            assert shown["state"] in ("JOB_STATE_QUEUED", "JOB_STATE_STARTING", "JOB_STATE_RUNNING"), \
                (shown["state"], shown.get("stateMessage"), shown.get("lastLogLines"))
            return int(shown.get("progress", {}).get("step", 0)) >= step and shown
        return wait_for(found, lambda: self.inside("penstock", "show", job) + self.log())

    def newest_checkpoint(self, job):
        found = self.json("checkpoints", job).get("checkpoints", [])
        return max((int(c["step"]) for c in found), default=0)


class ContainerTest(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="data-"))
        self.addCleanup(shutil.rmtree, self.directory)
        self.directory.chmod(0o755)
        shutil.copytree(SOURCE / "examples" / "tiny_llama", self.directory / "tiny_llama")
        # Read only: what jobs make of their data is kept with the state.
        self.data = ["--volume", f"{self.directory}:/srv/penstock:ro"]

    def volume(self):
        name = podman("volume", "create").strip()
        self.addCleanup(podman, "volume", "rm", "--force", name)
        return name


class ImageTest(ContainerTest):
    def daemon(self, volume):
        container = Container(self, "--volume", f"{volume}:/var/lib/penstock", *self.data)
        container.answers(*self.health())
        return container

    def health(self):
        [image] = json.loads(podman("image", "inspect", IMAGE))
        kind, *command = image["Healthcheck"]["Test"]
        self.assertEqual(kind, "CMD")
        return command

    def test_it_holds_what_it_needs_and_runs_as_an_ordinary_user(self):
        def run(*words):
            return podman("run", "--rm", "--network", "none", "--entrypoint", words[0], IMAGE, *words[1:])
        self.assertRegex(run("id"), r"uid=[1-9]\d*\(penstock\) gid=[1-9]\d*\(penstock\)")
        self.assertEqual(run("stat", "-c", "%U %a", "/var/lib/penstock"), "penstock 700\n")
        for program in ("penstockd", "penstock"):
            self.assertRegex(run(program, "--version"), r"\d\.\d")
        # Compilers, sources and packages stay with the stage that builds.
        self.assertEqual(run("sh", "-c", "ls -d /src /packages /tmp/packages /var/lib/apt/lists/* || true; "
                             "command -v c++ cmake python3 || true"), "")
        [image] = json.loads(podman("image", "inspect", IMAGE))
        self.assertEqual(image["Config"]["StopSignal"], "SIGTERM")
        self.assertEqual(set(image["Config"]["Volumes"]), {"/var/lib/penstock", "/srv/penstock"})

    def test_a_job_runs_in_the_memory_of_the_container(self):
        container = self.daemon(self.volume())
        info = container.json("info")
        self.assertLessEqual(int(info["hostMemoryBytes"]), MEMORY)
        self.assertIn("cgroup", info["hostMemoryLimitSource"])
        container.inside("penstock", "submit", "/srv/penstock/tiny_llama/job.yaml", "--job-id", "tiny", "--wait")
        shown = container.json("show", "tiny")
        self.assertEqual((shown["state"], shown["progress"]["step"]), ("JOB_STATE_SUCCEEDED", "60"), shown)

        # A daemon that starts no jobs is alive, but not ready.
        podman("healthcheck", "run", container.id)
        container.inside("penstock", "admin", "drain")
        podman("healthcheck", "run", container.id, code=1)
        container.inside("penstock", "info")
        container.inside("penstock", "admin", "undrain")
        podman("healthcheck", "run", container.id)
        self.assertEqual(container.stop(60), 0, "nothing is left to do")

    def test_a_stop_saves_and_the_next_container_goes_on(self):
        volume = self.volume()
        container = self.daemon(volume)
        container.inside("penstock", "submit", "/srv/penstock/tiny_llama/job.yaml", "--job-id", "long", *ENDLESS)
        seen = int(container.wait_for_step("long", 50)["progress"]["step"])
        self.assertEqual(container.stop(DEADLINE), 75, container.log())
        podman("rm", container.id)

        container = self.daemon(volume)
        saved = container.newest_checkpoint("long")
        self.assertGreaterEqual(saved, seen, "saved when it was stopped, as no checkpoint came before")
        container.wait_for_step("long", saved + 20)
        self.assertIn(f"goes on after step {saved} from ", container.inside("penstock", "logs", "long"))
        container.inside("penstock", "cancel", "long", "--wait")
        self.assertEqual(container.stop(60), 0)


class PodTest(ContainerTest):
    """The pods as a kubelet would run them: user, capabilities, mounts, environment, command and grace of
    their containers. Of the resources they get MEMORY only: this machine has no GPU, nor the memory."""

    def setUp(self):
        super().setUp()
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="pod-"))
        self.addCleanup(shutil.rmtree, self.scratch)
        (self.directory / "jobs").mkdir()
        text = (self.directory / "tiny_llama" / "job.yaml").read_text()
        text = re.sub(r"(config|text)\.(json|txt)", r"../tiny_llama/\1.\2", text)
        for name in ("run1", "0"):
            (self.directory / "jobs" / f"{name}.yaml").write_text(text.replace("max_steps: 60", "max_steps: 1000"))

    def read(self, name):
        """The pod's spec, and of its file the config maps."""
        text = (SOURCE / "deploy" / "kubernetes" / name).read_text().replace("NAME", "run1")
        documents = [d for d in yaml.safe_load_all(text) if d]
        [self.pod] = [d["spec"]["template"]["spec"] for d in documents if "template" in d.get("spec", {})]
        self.maps = {d["metadata"]["name"]: d["data"] for d in documents if d["kind"] == "ConfigMap"}
        # Of the claims the one that the site makes has the data, the other is the pod's own.
        self.sources = {"data": self.data[1].rsplit(":", 2)[0]}

    def folder(self, name, mode, owner=0, group=0):
        path = self.scratch / name
        path.mkdir()
        os.chown(path, owner, group)
        path.chmod(mode)
        return path

    def source(self, name):
        """What is mounted for a volume, the same for all pods of a test."""
        if name in self.sources:
            return self.sources[name]
        user, group = (self.pod["securityContext"][key] for key in ("runAsUser", "runAsGroup"))
        [spec] = [v for v in self.pod["volumes"] if v["name"] == name] or [{"persistentVolumeClaim": {}}]
        if "configMap" in spec:
            path = self.folder(name, 0o755)
            for file, text in self.maps[spec["configMap"]["name"]].items():
                (path / file).write_text(text)
        elif "emptyDir" in spec:
            path = self.folder(name, 0o777)
        elif "hostPath" in spec:
            path = self.folder(name, 0o700, user, group)
        else:
            path = self.folder(name, 0o2775, 0, self.pod["securityContext"]["fsGroup"])
        self.sources[name] = path
        return path

    def start(self, **environment):
        [spec] = self.pod["containers"]
        context = {**self.pod["securityContext"], **spec["securityContext"]}
        options = ["--user", f"{context['runAsUser']}:{context['runAsGroup']}"]
        options += [f"--cap-drop={c}" for c in context["capabilities"]["drop"]]
        options += ["--security-opt=no-new-privileges"] if not context["allowPrivilegeEscalation"] else []
        options += ["--read-only", "--read-only-tmpfs=false"] if context.get("readOnlyRootFilesystem") else []
        for mount in spec["volumeMounts"]:
            options += ["--volume", f"{self.source(mount['name'])}:{mount['mountPath']}"]
        environment.update({e["name"]: e["value"] for e in spec.get("env", [])})
        options += [f"--env={name}={value}" for name, value in environment.items()]
        options += ["--entrypoint", json.dumps(spec["command"])] if "command" in spec else []
        return Container(self, *options)

    def stop(self, container):
        return container.stop(self.pod["terminationGracePeriodSeconds"])

    def test_the_daemon_of_a_stateful_set(self):
        self.read("penstockd.yaml")
        [spec] = self.pod["containers"]
        container = self.start()
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            container.answers(*spec[probe]["exec"]["command"])
        container.inside("penstock", "--endpoint", "127.0.0.1:7070", "info")
        container.inside("penstock", "submit", "/srv/penstock/jobs/run1.yaml", "--job-id", "long", *ENDLESS)
        seen = int(container.wait_for_step("long", 50)["progress"]["step"])
        self.assertEqual(self.stop(container), 75, container.log())

        container = self.start()
        container.answers(*spec["readinessProbe"]["exec"]["command"])
        saved = container.newest_checkpoint("long")
        self.assertGreaterEqual(saved, seen)
        container.wait_for_step("long", saved + 20)
        container.inside("penstock", "cancel", "long", "--wait")
        container.inside("penstock", "admin", "drain")
        container.inside(*spec["livenessProbe"]["exec"]["command"])
        container.inside(*spec["readinessProbe"]["exec"]["command"], code=75)
        self.assertEqual(self.stop(container), 0)

    def run_until_done(self, state, **environment):
        """Stopped on its way, and started again as the rule for 75 has it."""
        container = self.start(**environment)
        endpoint = ["penstock", "--endpoint", f"unix:{state}/penstock.sock"]
        container.answers(*endpoint, "info", "--ready")
        def step():
            assert container.running(), container.log()
            # The daemon is ready before its one job is there.
            jobs = json.loads(container.inside(*endpoint, "-o", "json", "jobs")).get("jobs", [])
            return any(int(job.get("progress", {}).get("step", 0)) >= 20 for job in jobs)
        wait_for(step, container.log)
        self.assertEqual(self.stop(container), 75, container.log())

        container = self.start(**environment)
        self.assertEqual(container.wait(), 0, container.log())
        self.assertEqual(self.start(**environment).wait(), 0, "done already")

    def test_a_job(self):
        self.read("job.yaml")
        self.run_until_done("/state/run")

    def test_an_index_of_a_job(self):
        self.read("indexed_job.yaml")
        self.run_until_done("/state/sweep-0", JOB_COMPLETION_INDEX="0")


if __name__ == "__main__":
    unittest.main()
