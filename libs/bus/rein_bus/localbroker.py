"""One Apache Kafka broker on this machine (KRaft, no ZooKeeper), for `rein up` and for tests.

Everything it has lies under one folder: data, configuration, log, process id. It outlives the process that started it
and is stopped by the id in that folder, by anyone. Start and stop block; run them in a thread where a loop must go
on. A single node with no replicas: never for work that matters.
"""

import os
import random
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from rein_bus.errors import BusMisconfigured, FatalError
from rein_bus.kafka_client import MAX_RECORD_BYTES

START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 30.0
MAIN_CLASS = "kafka.Kafka"
HEAP = "-Xmx512m"

#: Where free ports are looked for.
PORTS = (20_000, 32_000)

#: Small machine: quick to start, few threads, no large caches.
JVM = (HEAP, "-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")

#: Log lines carry their time; the broker's own chatter stays out.
LOGGING = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
)

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
message.max.bytes={max_record_bytes}
replica.fetch.max.bytes={max_record_bytes}
auto.create.topics.enable=false
default.replication.factor=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=8
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=8
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
log.cleaner.dedupe.buffer.size=16777216
num.network.threads=2
num.io.threads=4
background.threads=2
"""


def fetch_jars(*, pom: Path, into: Path) -> None:
    """Bring Kafka's jars with Maven, unless they are there. Raises BusMisconfigured without Maven."""
    if any(into.glob("kafka_*.jar")):
        return
    maven = _program("mvn", package="maven")
    copy = ["-B", "-q", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
    done = subprocess.run([maven, *copy, f"-DoutputDirectory={into}"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise FatalError("broker.jars_missing", f"Maven could not bring Kafka's jars to {into}:\n{done.stdout[-2000:]}")


class LocalBroker:
    """The broker that lives in `home` and listens on 127.0.0.1:`port`."""

    def __init__(
        self, home: Path, *, port: int, jars: Path, controller_port: int | None = None, is_tied: bool = False
    ) -> None:
        """`is_tied`: it ends with the thread that starts it, however that ends (tests)."""
        self.home = home
        self.port = port
        self.log_file = home / "broker.log"
        self._controller_port = port + 1 if controller_port is None else controller_port
        self._jars = jars
        self._is_tied = is_tied
        self._pid_file = home / "broker.pid"
        self._properties = home / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Format the folder where it is new, start, and return once the broker answers; nothing to do if it runs.

        Raises BusMisconfigured (no Java, no jars, a taken port) or FatalError (it ended or hung; its log says why).
        """
        if self.pid() is not None:
            return
        java = _program("java", package="default-jre-headless")
        if not any(self._jars.glob("kafka_*.jar")):
            raise BusMisconfigured("broker.jars_missing", f"no Kafka in {self._jars}; call `make setup`")
        for port in (self.port, self._controller_port):
            if not _is_free(port):
                raise BusMisconfigured(
                    "broker.port_taken",
                    f"port {port} of 127.0.0.1 is taken; stop its owner or give the broker another port",
                )
        self._configure()
        if not (self.home / "data" / "meta.properties").exists():
            self._format(java)
        with self.log_file.open("ab") as log:
            log_start = log.tell()
            self._process = subprocess.Popen(
                [*self._tie(), java, *JVM, *LOGGING, "-cp", f"{self._jars}/*", MAIN_CLASS, str(self._properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._pid_file.write_text(str(self._process.pid))
        self._await_ready(self._process, log_start=log_start)

    def stop(self) -> None:
        """Stop it in order, then by force; nothing to do if it does not run. Data and log stay."""
        if (pid := self.pid()) is not None:
            os.kill(pid, signal.SIGTERM)
            if not self._has_ended(within_s=STOP_TIMEOUT_S):
                os.kill(pid, signal.SIGKILL)
                self._has_ended(within_s=STOP_TIMEOUT_S)
        self._pid_file.unlink(missing_ok=True)
        self._reap()

    def kill(self) -> None:
        """End it at once, as a crash would."""
        if (pid := self.pid()) is not None:
            os.kill(pid, signal.SIGKILL)
            self._has_ended(within_s=STOP_TIMEOUT_S)
        self._reap()

    def _reap(self) -> None:
        """Take the exit status of a broker that this object started."""
        if self._process is not None and self.pid() is None:
            self._process.wait()
            self._process = None

    def pid(self) -> int | None:
        """The process that serves this folder; None = it does not run."""
        try:
            pid = int(self._pid_file.read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            return None
        return pid if str(self._properties).encode() in command else None

    def _tie(self) -> list[str]:
        tie = shutil.which("setpriv") if self._is_tied else None
        return [tie, "--pdeathsig", "TERM"] if tie is not None else []

    def _configure(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        self._properties.write_text(
            PROPERTIES.format(
                port=self.port,
                controller_port=self._controller_port,
                data=self.home / "data",
                max_record_bytes=MAX_RECORD_BYTES,
            )
        )

    def _format(self, java: str) -> None:
        tool = [java, *JVM, "-cp", f"{self._jars}/*", "kafka.tools.StorageTool"]
        cluster = subprocess.run([*tool, "random-uuid"], capture_output=True, text=True, check=False).stdout.split()
        done = subprocess.run(
            [*tool, "format", "-t", cluster[-1] if cluster else "", "-c", str(self._properties)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise FatalError("broker.format_failed", f"Kafka could not format {self.home}/data: {done.stderr[-2000:]}")

    def _await_ready(self, process: subprocess.Popen[bytes], *, log_start: int) -> None:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not (b"Kafka Server started" in self.log_file.read_bytes()[log_start:] and _answers(self.port)):
            if process.poll() is not None:
                raise FatalError("broker.ended", self._blame(f"Kafka ended with status {process.returncode}"))
            if time.monotonic() > deadline_s:
                self.stop()
                raise FatalError("broker.hung", self._blame(f"Kafka was not ready within {START_TIMEOUT_S:g} s"))
            time.sleep(0.05)

    def _blame(self, what: str) -> str:
        tail = "\n".join(self.log_file.read_text(errors="replace").splitlines()[-15:])
        return f"{what}; its log, {self.log_file}, ends:\n{tail}"

    def _has_ended(self, *, within_s: float) -> bool:
        deadline_s = time.monotonic() + within_s
        while self.pid() is not None and time.monotonic() < deadline_s:
            time.sleep(0.05)
        return self.pid() is None


def free_ports(num_ports: int) -> list[int]:
    """Ports that were free a moment ago, from below those the kernel gives to outgoing connections.

    One of those could be anybody's by the time a broker has started.
    """
    ports: list[int] = []
    while len(ports) < num_ports:
        port = random.randrange(*PORTS)
        if port not in ports and _is_free(port):
            ports.append(port)
    return ports


def _program(name: str, *, package: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise BusMisconfigured(
            f"broker.{name}_missing", f"the local broker needs `{name}`; install it: sudo apt-get install {package}"
        )
    return path


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True
