"""A penstockd for one script: its state beside the script's files, stopped at its end."""

import json
import subprocess
import sys
import time


class Daemon:
    def __init__(self, binaries, work, roots):
        self.client, self.endpoint = binaries / "penstock", f"unix:{work}/state/penstock.sock"
        command = [binaries / "penstockd", "--state-directory", work / "state",
                   "--no-calibration"]
        for root in roots:
            command += ["--allowed-root", root]
        self.log = open(work / "penstockd.log", "w")
        self.process = subprocess.Popen(command, stderr=self.log)
        socket = work / "state" / "penstock.sock"
        while not socket.exists():
            if self.process.poll() is not None:
                sys.exit(f"penstockd ended with {self.process.returncode}: {self.log.name}")
            time.sleep(0.1)

    def run(self, *words):
        return subprocess.run([self.client, "--endpoint", self.endpoint, *words],
                              stdout=subprocess.PIPE, check=False)

    def call(self, *words):
        """What the client says in JSON; where it fails, all jobs' logs and the end of the script."""
        done = self.run("-o", "json", *words)
        if done.returncode != 0:
            for job in json.loads(self.run("-o", "json", "jobs").stdout).get("jobs", []):
                print(self.run("logs", job["name"]).stdout.decode(), file=sys.stderr)
            sys.exit(f"penstock {words[0]} ended with {done.returncode}; {self.log.name}")
        return done.stdout

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=60)
        self.log.close()
