"""Checks of the files in deploy/ that need none of the programs that read them: no Docker registry and no
Kubernetes. That what they name exists, that the daemon takes their configs, that periods and paths fit
together, and the rules of Kubernetes' API that such files break most easily. tools/test_image has the
schemas of that API, builds the image and runs it."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
BIN = pathlib.Path(os.environ["PENSTOCK_BIN"])
# docs/cli.md; 0, 75 and what no rule may catch are left out of those that end a job for good.
FATAL = [1, 2, 4, 5, 6, 10, 78]
UNREACHABLE = 3


def documents(name):
    return [d for d in yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text()) if d]


def find(name, kind):
    [found] = [d for d in documents(name) if d["kind"] == kind]
    return found


def beneath(path, folders):
    return any(pathlib.PurePath(path).is_relative_to(folder) for folder in folders)


def without_a_daemon(command):
    """The exit code of a command of `penstock` where no daemon is."""
    with tempfile.TemporaryDirectory() as directory:
        return subprocess.run([BIN / command[0], *command[1:]], capture_output=True, timeout=60,
                              env={**os.environ, "PENSTOCK_ENDPOINT": f"unix:{directory}/none"}).returncode


def configs():
    """Name and text of each daemon config that is delivered."""
    for path in DEPLOY.rglob("penstockd.yaml"):
        if path.parent.name == "kubernetes":
            data = find("penstockd.yaml", "ConfigMap")["data"]
            yield str(path), data["penstockd.yaml"]
        else:
            yield str(path), path.read_text()


class ConfigTest(unittest.TestCase):
    def test_the_daemon_knows_every_key(self):
        if not (BIN / "penstockd").exists():
            self.skipTest(f"{BIN}/penstockd is not built")
        found = list(configs())
        self.assertEqual(len(found), 3)
        with tempfile.TemporaryDirectory() as directory:
            for name, text in found:
                # A root that is not there is what the daemon names after it has read the file.
                config = pathlib.Path(directory) / "penstockd.yaml"
                config.write_text(re.sub(r"- /srv/penstock\b", f"- {directory}/none", text))
                result = subprocess.run([BIN / "penstockd", "--config", config], capture_output=True,
                                        text=True, timeout=60)
                self.assertEqual(result.returncode, 78, (name, result))
                self.assertIn(f"allowed_roots is '{directory}/none'", result.stderr, name)


class UnitTest(unittest.TestCase):
    def setUp(self):
        text = (DEPLOY / "systemd" / "penstockd.service").read_text()
        self.unit = dict(line.split("=", 1) for line in text.splitlines() if re.match(r"\w+=", line))

    def test_systemd_finds_nothing_to_say(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("no systemd-analyze")
        with tempfile.TemporaryDirectory() as directory:
            unit = pathlib.Path(directory) / "penstockd.service"
            text = (DEPLOY / "systemd" / "penstockd.service").read_text()
            unit.write_text(text.replace("/usr/bin/penstockd", "/bin/true"))
            result = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True,
                                    timeout=60)
            self.assertNotIn("penstockd.service", result.stderr)

    def test_a_stop_has_time_for_what_the_daemon_takes(self):
        self.assertGreater(int(self.unit["TimeoutStopSec"]), 600, "drain_seconds")
        self.assertEqual(self.unit["SuccessExitStatus"], "75")
        self.assertEqual(self.unit["RestartPreventExitStatus"], "78")

    def test_what_it_may_write_is_what_the_config_uses(self):
        config = yaml.safe_load((DEPLOY / "systemd" / "penstockd.yaml").read_text())
        self.assertEqual(config["state_directory"], "/var/lib/" + self.unit["StateDirectory"])
        self.assertEqual(self.unit["ReadWritePaths"].split(), config["allowed_roots"])
        self.assertIn("d /srv/penstock ", (DEPLOY / "systemd" / "penstock.tmpfiles").read_text())
        self.assertIn(f"u {self.unit['User']} ", (DEPLOY / "systemd" / "penstock.sysusers").read_text())


class DockerTest(unittest.TestCase):
    def setUp(self):
        text = (DEPLOY / "docker" / "Dockerfile").read_text()
        self.lines = [line for line in text.replace("\\\n", " ").splitlines()
                      if line and not line.startswith("#")]

    def of(self, instruction):
        return [line.split(None, 1)[1] for line in self.lines if line.split()[0] == instruction]

    def test_what_is_copied_exists(self):
        ignored = (ROOT / ".dockerignore").read_text().split()
        for line in self.of("COPY"):
            words = line.split()
            if words[0].startswith("--from="):
                self.assertIn(words[0][len("--from="):], [f.split()[-1] for f in self.of("FROM")])
                continue
            for source in words[:-1]:
                self.assertTrue((ROOT / source).exists(), line)
                self.assertNotIn(source, ignored)

    def test_presets_targets_and_packages_exist(self):
        text = "\n".join(self.lines)
        presets = (ROOT / "CMakePresets.json").read_text()
        for preset in re.findall(r"--preset (\w+)", text):
            self.assertIn(f'"name": "{preset}"', presets)
        cmake = (ROOT / "cmake" / "PenstockPackage.cmake").read_text()
        for package in re.findall(r"/tmp/packages/(\w+)_", text):
            self.assertIn(f"PACKAGE_NAME {package})", cmake)

    def test_it_runs_as_an_ordinary_user_with_a_health_check(self):
        self.assertEqual(self.of("USER"), ["penstock"])
        self.assertLess(self.lines.index("USER penstock"),
                        next(i for i, l in enumerate(self.lines) if l.startswith("ENTRYPOINT")))
        options, command = re.fullmatch(r"(.*) CMD (\[.*\])", self.of("HEALTHCHECK")[0]).groups()
        command = json.loads(command)
        self.assertEqual(command[0::3], ["penstock", "info"])
        self.assertGreater(int(re.search(r"--timeout=(\d+)s", options)[1]), int(command[2]))
        self.assertEqual(without_a_daemon(command), UNREACHABLE)

    def test_paths_are_those_of_its_config_and_a_stop_has_time(self):
        config = yaml.safe_load((DEPLOY / "docker" / "penstockd.yaml").read_text())
        [entrypoint] = map(json.loads, self.of("ENTRYPOINT"))
        self.assertEqual(entrypoint[:2], ["penstockd", "--config"])
        self.assertIn(f"deploy/docker/penstockd.yaml {entrypoint[2]}", self.of("COPY"))
        self.assertEqual(self.of("ENV"), [f"PENSTOCK_ENDPOINT=unix:{config['state_directory']}/penstock.sock"])
        self.assertEqual(json.loads(self.of("VOLUME")[0]), [config["state_directory"], *config["allowed_roots"]])
        for path in (DEPLOY / "docker" / "Dockerfile", ROOT / "docs" / "kubernetes.md"):
            seconds = re.search(r"--stop-timeout (\d+)", path.read_text())[1]
            self.assertGreaterEqual(int(seconds), config["drain_seconds"] + 60, path)


class KubernetesTest(unittest.TestCase):
    PODS = {"penstockd.yaml": "StatefulSet", "job.yaml": "Job", "indexed_job.yaml": "Job"}
    API = {"ConfigMap": "v1", "PersistentVolumeClaim": "v1", "StatefulSet": "apps/v1", "Job": "batch/v1"}

    def pods(self):
        for name, kind in self.PODS.items():
            yield name, find(name, kind)["spec"]["template"]["spec"]

    def test_kinds_are_of_their_api_and_names_are_names(self):
        for path in (DEPLOY / "kubernetes").glob("*.yaml"):
            for document in documents(path.name):
                self.assertEqual(document["apiVersion"], self.API[document["kind"]], path)
                self.assertRegex(document["metadata"]["name"].replace("NAME", "name"),
                                 r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")

    def test_memory_is_guaranteed_and_nothing_runs_as_root(self):
        for name, pod in self.pods():
            self.assertTrue(pod["securityContext"]["runAsNonRoot"], name)
            self.assertGreater(pod["securityContext"]["runAsUser"], 0, name)
            for container in pod["containers"]:
                resources = container["resources"]
                self.assertEqual(resources["requests"], resources["limits"], name)
                self.assertFalse(container["securityContext"]["allowPrivilegeEscalation"], name)
                self.assertEqual(container["securityContext"]["capabilities"]["drop"], ["ALL"], name)

    def test_what_is_mounted_is_declared_and_in_use(self):
        for name, pod in self.pods():
            declared = {v["name"] for v in pod["volumes"]}
            if name == "penstockd.yaml":
                templates = find(name, "StatefulSet")["spec"]["volumeClaimTemplates"]
                declared |= {t["metadata"]["name"] for t in templates}
            mounted = {m["name"] for c in pod["containers"] for m in c["volumeMounts"]}
            self.assertEqual(declared, mounted, name)

    def test_what_volumes_are_made_of_exists(self):
        for name, pod in self.pods():
            made = {(d["kind"], d["metadata"]["name"]) for d in documents(name)}
            for volume in pod["volumes"]:
                if "configMap" in volume:
                    self.assertIn(("ConfigMap", volume["configMap"]["name"]), made, name)
                # The one that the site makes.
                elif volume.get("persistentVolumeClaim", {}).get("claimName") not in (None, "penstock-data"):
                    claim = volume["persistentVolumeClaim"]["claimName"]
                    self.assertIn(("PersistentVolumeClaim", claim), made, name)

    def test_paths_lie_in_what_is_mounted(self):
        for name, pod in self.pods():
            [container] = pod["containers"]
            mounts = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
            words = " ".join(container.get("command", []))
            if "penstock run" in words:
                self.assertTrue(beneath(re.search(r"--state-dir (\S+)", words)[1], [mounts["state"]]), name)
                self.assertTrue(beneath(re.search(r"penstock run (\S+)", words)[1], [mounts["data"]]), name)
                continue
            # The image's own entry point, with another config in its place.
            [config_map] = find(name, "ConfigMap")["data"].items()
            dockerfile = (DEPLOY / "docker" / "Dockerfile").read_text()
            self.assertIn(f'"--config", "{mounts["config"]}/{config_map[0]}"', dockerfile)
            config = yaml.safe_load(config_map[1])
            state = config["state_directory"]
            self.assertTrue(beneath(state, [mounts["state"]]))
            self.assertNotEqual(state, mounts["state"], "fsGroup lets the group write there")
            self.assertTrue(all(beneath(root, [mounts["data"]]) for root in config["allowed_roots"]))
            self.assertEqual(container["env"], [{"name": "PENSTOCK_ENDPOINT",
                                                 "value": f"unix:{state}/penstock.sock"}])
            self.assertTrue(container["securityContext"]["readOnlyRootFilesystem"])
            self.assertEqual(mounts["tmp"], "/tmp")

    def test_one_pod_has_the_state_and_its_volume_is_of_one_node(self):
        daemon = find("penstockd.yaml", "StatefulSet")["spec"]
        self.assertEqual(daemon["replicas"], 1)
        self.assertEqual(daemon["selector"]["matchLabels"], daemon["template"]["metadata"]["labels"])
        for claim in [daemon["volumeClaimTemplates"][0], find("job.yaml", "PersistentVolumeClaim")]:
            self.assertEqual(claim["spec"]["accessModes"], ["ReadWriteOncePod"])

    def test_a_pod_has_longer_than_its_jobs_to_stop(self):
        config = yaml.safe_load(find("penstockd.yaml", "ConfigMap")["data"]["penstockd.yaml"])
        for name, pod in self.pods():
            words = " ".join(pod["containers"][0].get("command", []))
            grace = re.search(r"--grace (\d+)", words)
            seconds = int(grace[1]) if grace else config["drain_seconds"]
            self.assertGreaterEqual(pod["terminationGracePeriodSeconds"], seconds + 60, name)

    def test_probes_are_patient_and_ask_what_the_command_line_has(self):
        [container] = dict(self.pods())["penstockd.yaml"]["containers"]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            command = container[probe]["exec"]["command"]
            self.assertEqual(command[:2] + command[3:4], ["penstock", "--timeout", "info"])
            self.assertGreater(container[probe]["timeoutSeconds"], int(command[2]), probe)
            self.assertEqual(without_a_daemon(command), UNREACHABLE, probe)
        self.assertIn("--ready", container["readinessProbe"]["exec"]["command"])
        self.assertNotIn("--ready", container["livenessProbe"]["exec"]["command"],
                         "a daemon that drains is alive")
        live = container["livenessProbe"]
        self.assertGreaterEqual(live["periodSeconds"] * live["failureThreshold"], 120)

    def test_exit_codes_are_told_apart(self):
        """API rules: restartPolicy Never; one of onExitCodes and onPodConditions a rule; FailIndex needs
        backoffLimitPerIndex, which needs completionMode Indexed."""
        for name, fatal in (("job.yaml", "FailJob"), ("indexed_job.yaml", "FailIndex")):
            job = find(name, "Job")["spec"]
            self.assertEqual(job["template"]["spec"]["restartPolicy"], "Never")
            container = job["template"]["spec"]["containers"][0]["name"]
            actions = {}
            for rule in job["podFailurePolicy"]["rules"]:
                self.assertEqual(len({"onExitCodes", "onPodConditions"} & rule.keys()), 1)
                for code in rule.get("onExitCodes", {}).get("values", []):
                    self.assertEqual(rule["onExitCodes"]["containerName"], container)
                    actions[code] = rule["action"]
            self.assertEqual(actions, {75: "Ignore", **{code: fatal for code in FATAL}}, name)
            if fatal == "FailIndex":
                self.assertEqual(job["completionMode"], "Indexed")
                self.assertIn("backoffLimitPerIndex", job)
        table = (ROOT / "docs" / "cli.md").read_text()
        for code in [75, *FATAL]:
            self.assertRegex(table, rf"(?m)^\| {code} \|")

    def test_what_is_run_is_what_the_command_line_has(self):
        if not (BIN / "penstock").exists():
            self.skipTest(f"{BIN}/penstock is not built")
        text = subprocess.run([BIN / "penstock", "run", "--help"], capture_output=True, text=True,
                              timeout=60).stdout
        for name, pod in self.pods():
            for flag in re.findall(r"--[a-z-]+", " ".join(pod["containers"][0].get("command", []))):
                self.assertIn(flag, text, name)


class SlurmScriptsTest(unittest.TestCase):
    def test_they_parse_and_hand_the_signal_on(self):
        for path in (DEPLOY / "slurm").glob("*.sbatch"):
            subprocess.run(["bash", "-n", path], check=True)
            text = path.read_text()
            self.assertIn("#SBATCH --signal=B:TERM@", text)
            self.assertIn("#SBATCH --requeue", text)
            self.assertIn("\nexec penstock run ", text, "no shell between Slurm's signal and penstock")


if __name__ == "__main__":
    unittest.main()
