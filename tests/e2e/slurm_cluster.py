"""A Slurm of one node, of our own, for slurm_test.py: slurmctld, slurmd and munged in namespaces that
nothing leaves (tools/test_slurm makes them). The machine's own files are covered by empty file systems,
so that a Slurm that it may have is neither seen nor touched."""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

NODE = "penstock-node"
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "scontrol", "scancel", "munged")
# Everything that the daemons write.
COVERED = ("/run", "/etc/slurm", "/var/spool", "/var/log", "/var/lib/munge")
DEADLINE = 180  # seconds; only a hang reaches it
JOBS = pathlib.Path("/var/spool/slurmctld/job_state")  # what slurmctld has saved, when it liked to

# Fake GPUs are what jobs compete for. cred_expire is what a requeued job waits for at least;
# Slurm's default of two minutes would make up most of the test.
CONFIG = """\
ClusterName=penstock
SlurmctldHost={node}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=cred_expire=10
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurmctld.log
SlurmdLogFile=/var/log/slurmd.log
SlurmctldParameters=preempt_send_user_signal
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
KillWait=20
RequeueExit=75
SchedulerParameters=sched_min_interval=100000,sched_interval=2,batch_sched_delay=0,bf_interval=2
PropagateResourceLimitsExcept=MEMLOCK
NodeName={node} NodeAddr=127.0.0.1 CPUs=8 RealMemory=3000 Gres=gpu:{gpus} State=UNKNOWN
PartitionName=low Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=60
PartitionName=high Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""
GRES = "AutoDetect=off\nNodeName={node} Name=gpu File=/run/fakegpu[0-{last}]\n"


def run(*command, check=True, **options):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True,
                            timeout=DEADLINE, **options)
    if check and result.returncode != 0:
        raise AssertionError(f"{command}: {result}")
    return result


def missing():
    """What keeps a Slurm from running here; empty: nothing."""
    if os.geteuid() != 0:
        return "it needs root"
    programs = [p for p in PROGRAMS if shutil.which(p, path="/usr/sbin:/usr/bin") is None]
    if programs:
        return f"{', '.join(programs)} not found: run tools/install_deps --slurm"
    if os.getpid() != 1:
        return "it is not in namespaces of its own: run tools/test_slurm"
    return ""


class Cluster:
    def __init__(self, gpus):
        self._cover()
        self._make_network()
        self._configure(gpus)
        for daemon in ("munge", "slurmctld", "slurmd"):
            getattr(self, f"start_{daemon}")()
        self._wait_for(lambda: run("sinfo", "-h", "-o", "%T").stdout.strip() == "idle",
                       "the node is not idle")

    def _cover(self):
        for path in COVERED:
            pathlib.Path(path).mkdir(parents=True, exist_ok=True)
            run("mount", "-t", "tmpfs", "tmpfs", path)
        hosts = pathlib.Path("/run/hosts")
        hosts.write_text(f"127.0.0.1 localhost {NODE}\n")
        run("mount", "--bind", hosts, "/etc/hosts")
        socket.sethostname(NODE)

    def _make_network(self):
        # Slurm looks for an address that is not the loopback's, and wants to find one.
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1")
        run("ip", "addr", "add", "10.99.0.1/24", "dev", "v0")
        run("ip", "link", "set", "v0", "up")
        run("ip", "link", "set", "v1", "up")

    def _configure(self, gpus):
        pathlib.Path("/etc/slurm/slurm.conf").write_text(CONFIG.format(node=NODE, gpus=gpus))
        pathlib.Path("/etc/slurm/gres.conf").write_text(GRES.format(node=NODE, last=gpus - 1))
        for path in ("/var/spool/slurmctld", "/var/spool/slurmd"):
            pathlib.Path(path).mkdir()
        for number in range(gpus):
            run("mknod", f"/run/fakegpu{number}", "c", "195", str(number))

    def start_munge(self):
        for path in ("/run/munge", "/var/log/munge", "/var/lib/munge"):
            pathlib.Path(path).mkdir(exist_ok=True)
            shutil.chown(path, "munge", "munge")
            os.chmod(path, 0o755)
        run("runuser", "-u", "munge", "--", "/usr/sbin/munged")

    def start_slurmctld(self):
        run("/usr/sbin/slurmctld")

    def start_slurmd(self):
        run("/usr/sbin/slurmd")

    def kill_slurmctld(self):
        pid = int(pathlib.Path("/run/slurmctld.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)  # Daemons are children of a namespace's first process, which we are.

    def undo_refused_launch(self, job):
        """As an administrator has to: where slurmd refuses to launch what it runs already, Slurm drains
        the node and holds the job; where it has just killed that, it refuses to launch it again, and
        Slurm takes the job to have failed."""
        if run("sinfo", "-h", "-o", "%T").stdout.startswith("drain"):
            run("scontrol", "update", f"nodename={NODE}", "state=resume")
        shown = self.show(job)
        if shown["Reason"] == "launch_failed_requeued_held":
            run("scontrol", "release", job)
        revoked = f"Killing non-startable batch JobId={job}: Job credential revoked"
        if shown["JobState"] == "FAILED" and revoked in self.log_of("slurmctld"):
            run("scontrol", "requeue", job)

    def stop(self):
        """Ends all that ran under it: this process is the first of its namespace."""
        os.kill(-1, signal.SIGKILL)

    def submit(self, script, *arguments, options=()):
        return run("sbatch", "--parsable", *options, script, *arguments).stdout.strip()

    def show(self, job):
        """What scontrol knows of a job, key to value."""
        text = run("scontrol", "-o", "show", "job", job).stdout
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def saved_jobs(self):
        """What a controller that is started now would find: its own binary file, names in plain text."""
        return JOBS.read_bytes() if JOBS.exists() else b""

    def wait_for_state(self, job, *states):
        self._wait_for(lambda: self.show(job)["JobState"] in states,
                       lambda: f"job {job} is not {states}: {self.show(job)}")
        return self.show(job)

    def log_of(self, name):
        return pathlib.Path(f"/var/log/{name}.log").read_text(errors="replace")

    def log_text(self):
        """Jobs, nodes, and the ends of the daemons' logs: for the message of what hangs."""
        return "\n".join(
            [run("squeue", check=False).stdout, run("sinfo", "-N", "-l", check=False).stdout] +
            [self.log_of(name)[-6000:] for name in ("slurmctld", "slurmd")])

    def _wait_for(self, condition, message):
        deadline = time.monotonic() + DEADLINE
        while not condition():
            if time.monotonic() >= deadline:
                text = message() if callable(message) else message
                raise AssertionError(f"{text}\n{self.log_text()}")
            time.sleep(0.2)
