"""Several users of one penstockd: tokens, TLS and the audit log, by the command line."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

import harness
from harness import BIN, DEADLINE, EXAMPLE, Daemon, load_json

OPENSSL = shutil.which("openssl")


def make_certificates(directory):
    """An authority, and a certificate of it for 127.0.0.1."""
    def openssl(*arguments):
        subprocess.run([OPENSSL, *arguments], cwd=directory, check=True, capture_output=True)
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *new_key, "-keyout", "authority.key", "-out", "authority.pem",
            "-days", "2", "-subj", "/CN=test authority")
    openssl("req", *new_key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=penstockd")
    (directory / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    openssl("x509", "-req", "-in", "server.csr", "-CA", "authority.pem", "-CAkey", "authority.key",
            "-CAcreateserial", "-days", "2", "-extfile", "names", "-out", "server.pem")
    os.chmod(directory / "server.key", 0o600)


class AccessTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.directory = cls.daemon.directory
        make_certificates(cls.directory)
        config = {"listen": "127.0.0.1:0", "require_token": True,
                  "tls": {"certificate": str(cls.directory / "server.pem"),
                          "key": str(cls.directory / "server.key")},
                  "quotas": [{"user": "ann", "queued_jobs": 1}]}
        path = cls.directory / "penstockd.json"
        path.write_text(json.dumps(config))
        cls.daemon.start("--config", str(path))
        endpoint = json.loads((cls.daemon.state / "endpoint.json").read_text())
        assert endpoint["tls"] is True
        cls.endpoint = "https://" + endpoint["tcp_address"]

    @classmethod
    def tearDownClass(cls):
        cls.daemon.close()

    def penstock(self, *arguments, token=None, endpoint=None, ca=True, exit_code=0):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
        if token is not None:
            environment["PENSTOCK_TOKEN"] = token
        options = ["--endpoint", endpoint or self.endpoint]
        if ca and options[1].startswith("https"):
            options += ["--tls-ca", self.directory / "authority.pem"]
        result = subprocess.run([BIN / "penstock", *options, *[str(a) for a in arguments]],
                                capture_output=True, text=True, timeout=DEADLINE, env=environment)
        self.assertEqual(result.returncode, exit_code, f"{arguments}: {result}")
        return result

    def local(self, *arguments, **options):
        return self.penstock(*arguments, endpoint=str(self.daemon.socket), **options)

    def token(self, user, role, *more):
        result = self.local("admin", "token", "create", "--user", user, "--role", role, *more)
        secret = result.stdout.strip()
        self.assertRegex(secret, r"^pst_[0-9a-f]{64}$")
        self.assertNotIn(secret, result.stderr)
        return secret

    @staticmethod
    def server_info(result):
        # Two replies, one a line: the daemon's and its devices'.
        return json.loads(result.stdout.splitlines()[0])

    def caller(self, **options):
        return self.server_info(self.penstock("info", "-o", "json", **options))["caller"]

    def test_tokens_roles_and_owners(self):
        ann, bob = self.token("ann", "user", "--expires", "1d"), self.token("bob", "user")
        vic, root = self.token("vic", "viewer"), self.token("root", "admin")
        self.assertEqual(self.caller(token=ann), {"user": "ann", "role": "ROLE_USER"})
        job = self.penstock("submit", EXAMPLE / "job.yaml", "--set", "schedule.max_steps=1000000",
                            token=ann).stdout.strip()
        self.assertEqual(load_json(self.penstock("show", job, "-o", "json", token=vic))["owner"], "ann")
        for token, role in ((vic, "viewer"), (bob, "owner")):
            refused = self.penstock("cancel", job, token=token, exit_code=5)
            self.assertIn("ROLE_INSUFFICIENT" if role == "viewer" else "NOT_OWNER", refused.stderr)
        listed = load_json(self.penstock("jobs", "--owner", "ann", "-o", "json", token=vic))["jobs"]
        self.assertIn(job, [j["name"] for j in listed])
        self.assertEqual({j["owner"] for j in listed}, {"ann"})
        others = self.penstock("jobs", "--owner", "bob", "-o", "json", token=vic)
        self.assertNotIn("jobs", load_json(others))
        self.penstock("admin", "token", "list", token=bob, exit_code=5)
        # One of ann's may wait; the second waits, the third is refused.
        second = self.penstock("submit", EXAMPLE / "job.yaml", "--job-id", "waits", token=ann)
        refused = self.penstock("submit", EXAMPLE / "job.yaml", token=ann, exit_code=75)
        self.assertIn("QUOTA_EXCEEDED", refused.stderr)
        self.penstock("cancel", second.stdout.strip(), token=ann)
        self.penstock("cancel", job, "--wait", token=root)

    def test_a_token_has_to_be_good_and_kept_to_oneself(self):
        self.assertIn("TOKEN_MISSING", self.penstock("jobs", exit_code=5).stderr)
        unknown = "pst_" + "0" * 64
        refused = self.penstock("jobs", token=unknown, exit_code=5)
        self.assertIn("TOKEN_INVALID", refused.stderr)
        self.assertNotIn(unknown, refused.stderr)
        self.assertIn("PENSTOCK_TOKEN", self.penstock("jobs", token="secret", exit_code=2).stderr)
        self.assertNotIn("secret", self.penstock("jobs", token="secret", exit_code=2).stderr)
        path = self.directory / "token"
        path.write_text(self.token("ann", "viewer") + "\n")
        path.chmod(0o640)
        self.assertIn("chmod 600", self.penstock("--token-file", path, "jobs", exit_code=2).stderr)
        path.chmod(0o600)
        self.penstock("--token-file", path, "jobs")
        # In plain text it stays at home.
        refused = self.penstock("--token-file", path, "jobs", endpoint="192.0.2.1:7070", exit_code=2)
        self.assertIn("plain text", refused.stderr)
        tokens = load_json(self.local("admin", "token", "list", "-o", "json"))["tokens"]
        name = [t for t in tokens if t["user"] == "ann"][-1]["name"]
        self.local("admin", "token", "revoke", name)
        self.assertIn("TOKEN_REVOKED",
                      self.penstock("--token-file", path, "jobs", exit_code=5).stderr)
        self.local("admin", "token", "revoke", "nothing", exit_code=4)
        self.local("admin", "token", "create", "--user", "ann", "--role", "root", exit_code=2)
        self.local("admin", "token", "create", "--user", "Ann!", "--role", "user", exit_code=2)
        self.local("admin", "token", "create", "--user", "ann", "--role", "user", "--expires", "soon",
                   exit_code=2)

    def test_tls_is_wanted_and_checked(self):
        token = self.token("ann", "viewer")
        address = self.endpoint.removeprefix("https://")
        self.penstock("--timeout", "5", "jobs", token=token, endpoint=address, exit_code=3)
        self.penstock("--timeout", "5", "jobs", token=token, ca=False, exit_code=3)
        refused = self.penstock("--tls-ca", self.directory / "authority.pem", "jobs",
                                endpoint=address, exit_code=2)
        self.assertIn("https://", refused.stderr)

    def test_streams_carry_the_token_too(self):
        ann = self.token("ann", "user")
        job = self.penstock("submit", EXAMPLE / "job.yaml", "--wait", token=ann).stdout.split()[0]
        self.assertRegex(self.penstock("show", job, token=ann).stdout, r"State: +succeeded")
        self.penstock("logs", job, "-f", token=ann)

    def test_workers_have_no_network(self):
        job = self.local("submit", EXAMPLE / "job.yaml", "--set", "schedule.max_steps=1000000",
                         "--job-id", "confined").stdout.strip()
        self.addCleanup(lambda: self.local("cancel", job, "--wait"))
        client = harness.Client(self.daemon.target)
        self.addCleanup(client.close)
        client.wait_for_step(job, 1)
        status = pathlib.Path(f"/proc/{self.daemon.worker('confined')}/status").read_text()
        self.assertRegex(status, r"NoNewPrivs:\s+1")
        self.assertRegex(status, r"Seccomp:\s+2")

    def test_drain(self):
        self.addCleanup(lambda: self.local("admin", "undrain"))
        self.local("admin", "drain", "--message", "new disks")
        self.assertEqual(self.server_info(self.local("info", "-o", "json"))["drainMessage"],
                         "new disks")
        self.local("admin", "undrain")
        self.assertEqual(self.server_info(self.local("info", "-o", "json"))["status"],
                         "SERVER_STATUS_SERVING")

    def test_the_audit_log_is_listed_and_verified(self):
        self.token("ann", "viewer")
        verified = self.local("admin", "audit", "verify")
        found = re.search(r"(\d+) entries, the last has hash ([0-9a-f]{64})", verified.stdout)
        self.assertIsNotNone(found, verified.stdout)
        entries = load_json(self.local("admin", "audit", "list", "--limit", "100000",
                                       "-o", "json"))["entries"]
        self.assertEqual(entries[-1]["method"], "penstock.v1.AdminService/CreateToken")
        self.assertEqual(entries[-1]["user"], "local")
        self.assertEqual(entries[-1]["peer"], "unix")
        self.local("admin", "audit", "verify", "--has", found.group(2))
        broken = self.local("admin", "audit", "verify", "--has", "0" * 64, exit_code=70)
        self.assertIn("AUDIT_BROKEN", broken.stderr)

    def test_no_secret_is_in_the_log(self):
        secret = self.token("ann", "admin")
        self.penstock("jobs", token=secret)
        self.penstock("cancel", "jobs/" + secret.replace("_", "-")[:40], token=secret, exit_code=4)
        self.assertNotIn("pst_", self.daemon.log_text())


class RefusedStartTest(unittest.TestCase):
    def start(self, *flags):
        daemon = Daemon()
        try:
            return subprocess.run(
                [daemon.program, "--state-directory", daemon.state, "--allowed-root", daemon.work,
                 *flags], capture_output=True, text=True, timeout=DEADLINE)
        finally:
            daemon.close()

    def test_an_open_door_is_refused_with_the_way_out(self):
        for flags in (["--listen", "0.0.0.0:0"], ["--listen", "0.0.0.0:0", "--require-token"]):
            result = self.start(*flags)
            self.assertEqual(result.returncode, 78, result)
            self.assertIn("TLS and authentication only", result.stderr)
            self.assertIn("require_token", result.stderr)

    def test_a_missing_certificate_is_named(self):
        result = self.start("--listen", "127.0.0.1:0", "--tls-certificate", "/none.pem",
                            "--tls-key", "/none.key")
        self.assertEqual(result.returncode, 78, result)
        self.assertIn("tls.certificate: /none.pem cannot be read", result.stderr)


if __name__ == "__main__":
    assert OPENSSL is not None, "no openssl: run tools/install_deps"
    program = unittest.main(exit=False, verbosity=2)
    harness.remove_stubs()
    sys.exit(not program.result.wasSuccessful())
