"""Attempts to escape from the sandbox: short pieces of Python, run one after another inside it.

A piece that ends has escaped; one that is refused raises OSError. `goal` names what is outside:
canary, folder, home, tcp, tcp6, udp, socket, abstract, process, app, checkout, secret,
host.

None does harm where nothing isolates it, except to the canaries: a test that fails must not take the
computer with it. So a file is moved onto itself, and a signal is 0; system calls get arguments that
the kernel refuses with another error than the filter does.
"""

from __future__ import annotations

# The first lines of the program.
BEGIN = r"""
import asyncio, ctypes, errno, fcntl, json, mmap, os, resource, shutil, signal, socket, struct, sys, time

library = ctypes.CDLL(None, use_errno=True)
on_x86 = os.uname().machine == "x86_64"


def checked(result):
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def call(numbers, *arguments):
    "A system call by its numbers on x86_64 and aarch64, which the filter must refuse."
    number = numbers[0] if on_x86 else numbers[1]
    if number < 0:
        raise OSError("the machine does not have it")
    plain = (ctypes.c_long(one) if isinstance(one, int) else one for one in arguments)
    result = library.syscall(ctypes.c_long(number), *plain)
    if result == -1 and ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS):
        raise RuntimeError(f"the kernel refused it: {os.strerror(ctypes.get_errno())}")
    return checked(result)


def send(family, kind, address, protocol=0):
    with socket.socket(family, kind, protocol) as one:
        one.settimeout(2)
        one.connect(address)
        one.send(b"escaped")


def found(what):
    if not what:
        raise OSError("nothing is there")


def raise_limit(kind, limit):
    try:
        resource.setrlimit(kind, (limit, limit))
    except ValueError as error:
        raise OSError(str(error)) from None


def library_file(name):
    return os.path.join(os.path.dirname(os.__file__), name)
"""

# The last lines: what came of each.
END = r"""
outcomes = {}
for name, piece in attempts.items():
    os.chdir("/own")
    try:
        exec(piece, globals())
        outcomes[name] = "escaped"
    except OSError as error:
        outcomes[name] = f"refused: {error}"
    except BaseException as error:
        outcomes[name] = f"wrong: {type(error).__name__}: {error}"
print(json.dumps(outcomes))
"""

# First, as others leave descriptors open.
INHERITED = {
    "inherited descriptors": (
        "alive = []\n"
        "for number in range(3, 1024):\n"
        "    try:\n"
        "        alive.append(os.fstat(number))\n"
        "    except OSError:\n"
        "        pass\n"
        "found(alive)"
    ),
}

NETWORK = {
    "tcp v4": "send(socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', goal['tcp']))",
    "tcp v6": "send(socket.AF_INET6, socket.SOCK_STREAM, ('::1', goal['tcp6']))",
    "tcp without Python's sockets": (
        "one = call((41, 198), 2, 1, 0)\n"
        "where = struct.pack('!2sH4s8x', b'\\2\\0', goal['tcp'], bytes((127, 0, 0, 1)))\n"
        "call((42, 203), one, where, 16)"
    ),
    "udp v4": "send(socket.AF_INET, socket.SOCK_DGRAM, ('127.0.0.1', goal['udp']))",
    "udp v6": "send(socket.AF_INET6, socket.SOCK_DGRAM, ('::1', goal['udp']))",
    "unix socket by its path": "send(socket.AF_UNIX, socket.SOCK_STREAM, goal['socket'])",
    "unix socket by an abstract name": (
        "send(socket.AF_UNIX, socket.SOCK_STREAM, '\\0' + goal['abstract'])"
    ),
    "a pair that sends to others": (
        "one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "one.sendto(b'escaped', goal['socket'])"
    ),
    "a pair of another family": "socket.socketpair(socket.AF_INET)",
    "a pair that connects elsewhere": (
        "one, _ = socket.socketpair()\none.connect('\\0' + goal['abstract'])"
    ),
    "netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)",
    "raw socket": "socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)",
    "ping socket": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)",
    "packet socket": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3)",
    "host of a virtual machine": "socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)",
    "bluetooth": "socket.socket(31, socket.SOCK_RAW, 1)",
    "cryptography of the kernel": "socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)",
    "names of hosts": "socket.getaddrinfo('example.com', 80)",
    "a server": "socket.create_server(('127.0.0.1', 0))",
    "asyncio": (
        "async def connect():\n"
        "    await asyncio.open_connection('127.0.0.1', goal['tcp'])\n"
        "asyncio.run(connect())"
    ),
    "urllib": (
        "import urllib.request\nurllib.request.urlopen(f'http://127.0.0.1:{goal[\"tcp\"]}', timeout=2)"
    ),
    "the kernel's view of the network": "open('/proc/net/tcp').read()",
}

FILES = {
    "read": "open(goal['canary']).read()",
    "read by way of ..": "open('../../../../..' + goal['canary']).read()",
    "read by way of the temporary folder": "open('/tmp/../..' + goal['canary']).read()",
    "append": "open(goal['canary'], 'a').write('escaped')",
    "make": "open(goal['folder'] + '/made', 'w').close()",
    "make a folder": "os.mkdir(goal['folder'] + '/made')",
    "remove": "os.remove(goal['canary'])",
    "truncate": "os.truncate(goal['canary'], 0)",
    "change the mode": "os.chmod(goal['canary'], 0o777)",
    "change the owner": "os.chown(goal['canary'], 1000, 1000)",
    "change the time": "os.utime(goal['canary'], (0, 0))",
    "set an attribute": "os.setxattr(goal['canary'], 'user.escaped', b'1')",
    "look at": "os.stat(goal['canary'])",
    "ask for access": "found(os.access(goal['canary'], os.F_OK))",
    "move in": "os.rename(goal['canary'], 'canary')",
    "move out": "open('mine', 'w').close()\nos.rename('mine', goal['folder'] + '/made')",
    "exchange": (
        "open('mine', 'w').close()\n"
        "checked(library.renameat2(-100, b'mine', -100, goal['canary'].encode(), 2))"
    ),
    "symbolic link": "os.symlink(goal['canary'], 'link')\nopen('link').read()",
    "symbolic link to /": "os.symlink('/', 'root')\nopen('root' + goal['canary']).read()",
    "symbolic link to write": (
        "os.symlink(goal['folder'], 'out')\nopen('out/made', 'w').write('escaped')"
    ),
    "hard link": "os.link(goal['canary'], 'hard')",
    "hard link to the library": "os.link(os.__file__, 'hard')",
    "users": "open('/etc/passwd').read()",
    "passwords": "open('/etc/shadow').read()",
    "names of hosts in a file": "open('/etc/resolv.conf').read()",
    "home folder": "found([path for path in goal['home'] if os.path.lexists(path)])",
    "temporary folder of the system": "found(os.listdir('/tmp'))",
    "shared memory of the system": "os.listdir('/dev/shm')",
    "sockets of the system": "os.listdir('/run')",
    "logs": "os.listdir('/var')",
    "programs": "os.listdir('/usr/bin')",
    "the app's code": "os.listdir(goal['checkout'])",
    "the app's modules": "import importlib\nfound(importlib.util.find_spec('app'))",
    "the app's packages": "found(os.listdir(library_file('site-packages')))",
    "change the library": "open(os.__file__, 'a').close()",
    "make a file in the library": (
        "made = library_file(f'made{os.getpid()}.py')\nopen(made, 'x').close()\nos.remove(made)"
    ),
    "compiled code of the library": (
        "cached = library_file(f'__pycache__/made{os.getpid()}.pyc')\n"
        "open(cached, 'xb').close()\n"
        "os.remove(cached)"
    ),
    "move the library": "os.rename(library_file('json'), library_file('json'))",
    "memory of the library": (
        "with open(os.__file__, 'r+b') as file:\n    mmap.mmap(file.fileno(), 0)[0:1]"
    ),
    "write at the top": "open('/made', 'x').close()\nos.remove('/made')",
    "a folder at the top": "os.mkdir('/made')\nos.rmdir('/made')",
    "read the top again": "found(set(os.listdir('/')) & {'etc', 'proc', 'sys', 'bin', 'home'})",
    "file handle": (
        "handle = struct.pack('Ii8s', 8, 1, struct.pack('II', 2, 0))\n"
        "call((304, 265), 0, handle, 0)"
    ),
    "name of a handle": "call((303, 264), -100, b'/', bytes(128), bytes(8), 0)",
    "ask with openat2": "call((437, 437), -100, goal['canary'].encode(), bytes(24), 24)",
    "standard input": "found(os.read(0, 1))",
    "read from the output": "os.read(1, 1)",
    "a folder above the descriptor": (
        "top = os.open('/', os.O_RDONLY)\nos.stat('../../..' + goal['canary'], dir_fd=top)"
    ),
    "watch files": "call((294, 26), 0)",
    "watch all files": "call((300, 262), 0, 0)",
    "quotas": "call((179, 60), 0x80000700, None, 0, bytes(64))",
    "accounting": "call((163, 89), b'/own/none')",
}

PROC_AND_DEVICES = {
    "process 1": "open('/proc/1/environ', 'rb').read()",
    "root of a process": "os.listdir('/proc/self/root')",
    "root of process 1": "os.listdir('/proc/1/root/')",
    "own memory": "open('/proc/self/mem', 'r+b')",
    "memory of another": "open(f'/proc/{goal[\"process\"]}/mem', 'rb')",
    "environment of another": "open(f'/proc/{goal[\"process\"]}/environ', 'rb').read()",
    "descriptors of the app": "os.listdir(f'/proc/{goal[\"app\"]}/fd')",
    "own program": "os.readlink('/proc/self/exe')",
    "list of processes": "os.listdir('/proc')",
    "memory of the kernel": "open('/proc/kcore', 'rb').read(1)",
    "keys of the kernel": "os.open('/proc/sysrq-trigger', os.O_WRONLY)",
    "settings of the kernel": "os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY)",
    "/sys": "os.listdir('/sys')",
    "control groups": "os.listdir('/sys/fs/cgroup')",
    "/dev/mem": "os.open('/dev/mem', os.O_RDONLY)",
    "/dev/kmsg": "os.open('/dev/kmsg', os.O_RDONLY)",
    "a disk": "os.open('/dev/vda', os.O_RDONLY)",
    "a terminal": "os.open('/dev/tty', os.O_RDWR)",
    "a new terminal": "os.open('/dev/ptmx', os.O_RDWR)",
    "virtual machines": "os.open('/dev/kvm', os.O_RDWR)",
    "file systems of users": "os.open('/dev/fuse', os.O_RDWR)",
    "make a device": "os.mknod('memory', 0o020666, os.makedev(1, 1))",
    "make a pipe with a name": "os.mkfifo('pipe')",
    "other devices": "found(set(os.listdir('/dev')) - {'null', 'zero', 'urandom'})",
    "type into the terminal": "fcntl.ioctl(1, 0x5412, b'x')",
    "type into the input": "fcntl.ioctl(0, 0x5412, b'x')",
    "paste into the console": "fcntl.ioctl(1, 0x541C, b'\\3')",
    "take the terminal": "fcntl.ioctl(0, 0x540E, 0)",
}

MOUNTS = {
    "mount": "call((165, 40), b'tmpfs', b'/own/none', b'tmpfs', 0, None)",
    "mount /proc": "call((165, 40), b'proc', b'/own/none', b'proc', 0, None)",
    "bind": "call((165, 40), b'/', b'/own/none', None, 0x1000, None)",
    "mount writable": "call((165, 40), None, b'/own/none', None, 0x20 | 0x1000, None)",
    "unmount": "call((166, 39), b'/own/none', 2)",
    "pivot_root": "call((155, 41), b'none', b'none')",
    "chroot": "call((161, 51), b'none')",
    "chroot twice": (
        "top = os.open('/', os.O_RDONLY)\n"
        "os.mkdir('jail')\n"
        "os.chroot('jail')\n"
        "os.fchdir(top)\n"
        "os.chroot('../../..')"
    ),
    "open_tree": "call((428, 428), -100, b'/', 1)",
    "move_mount": "call((429, 429), -100, b'none', -100, b'none', 0)",
    "fsopen": "call((430, 430), b'none', 0)",
    "mount_setattr": "call((442, 442), -100, b'none', 0, bytes(32), 32)",
    "swapon": "call((167, 224), b'/own/none', 0)",
}

PROCESSES = {
    "end another": "os.kill(goal['process'], signal.SIGKILL)",
    "end the app": "os.kill(goal['app'], 0)",
    "signal all": "os.kill(-1, 0)",
    "signal the group": "os.kill(0, 0)",
    "end by thread": "call((200, 130), goal['process'], 9)",
    "end by group and thread": "call((234, 131), goal['process'], goal['process'], 9)",
    "end by a queued signal": "call((129, 138), goal['process'], 9, bytes(128))",
    "end by a descriptor": "call((434, 434), goal['process'], 0)",
    "own a signal": "fcntl.fcntl(1, fcntl.F_SETOWN, goal['process'])",
    "trace": "call((101, 117), 16, goal['process'], 0, 0)",
    "be traced": "call((101, 117), 0, 0, 0, 0)",
    "read memory": "call((310, 270), goal['process'], bytes(16), 1, bytes(16), 1, 0)",
    "write memory": "call((311, 271), goal['process'], bytes(16), 1, bytes(16), 1, 0)",
    "compare": "call((312, 272), goal['process'], goal['app'], 0, 0, 0)",
    "move memory": "call((256, 238), goal['process'], 8, bytes(8), bytes(8))",
    "limits of another": "resource.prlimit(goal['process'], resource.RLIMIT_NOFILE)",
    "priority of another": "os.setpriority(os.PRIO_PROCESS, goal['process'], 19)",
    "higher priority": "os.nice(-5)",
    "real time": "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))",
    "processors of another": "os.sched_setaffinity(goal['process'], {0})",
    "group of another": "os.getpgid(goal['process'])",
    "session of another": "os.getsid(goal['process'])",
    "fork": "os.fork() or os._exit(0)",
    "fork without Python": "call((57, -1)) or os._exit(0)",
    "vfork": "call((58, -1)) or os._exit(0)",
    "clone": "call((56, 220), signal.SIGCHLD, 0, 0, 0, 0) or os._exit(0)",
    "clone with a namespace": "call((56, 220), 0x10000000 | 17, 0, 0, 0, 0) or os._exit(0)",
    "clone3": "call((435, 435), struct.pack('8Q', 0, 0, 0, 0, 17, 0, 0, 0), 64) or os._exit(0)",
    "spawn": "os.posix_spawn('/bin/true', ['true'], {})",
    "multiprocessing": (
        "import multiprocessing\nmultiprocessing.get_context('fork').Process(target=print).start()"
    ),
    "subprocess": "import subprocess\nsubprocess.run([sys.executable, '-c', '1'])",
    "a shell": "found(os.system('true') == 0)",
    "exec": "os.execv(sys.executable, [sys.executable, '-c', '1'])",
    "exec of a file made here": (
        "shutil.copy(os.__file__, 'made')\nos.chmod('made', 0o755)\nos.execv('/own/made', ['made'])"
    ),
    "exec of memory": "os.execve(os.memfd_create('made'), ['made'], {})",
    "exec with a library before others": (
        "os.execve(sys.executable, [sys.executable], {'LD_PRELOAD': '/own/made.so'})"
    ),
    "a session of its own": "os.setsid()",
    "a group of its own": "os.setpgid(0, 0)",
    "wait for others": "found(os.waitpid(-1, os.WNOHANG)[0])",
}

PRIVILEGES = {
    "be root": "os.setuid(0)",
    "be root's group": "os.setgid(0)",
    "be another": "os.setresuid(0, 0, 0)",
    "be another for files": "found(call((122, 151), 0) == 0)",
    "be in groups": "os.setgroups([0])",
    "capabilities": "call((126, 91), struct.pack('Ii', 0x20080522, 0), b'\\xff' * 24)",
    "ambient capabilities": "call((157, 167), 47, 2, 21, 0, 0)",
    "keep capabilities": "call((157, 167), 8, 1, 0, 0, 0)",
    "new privileges": "call((157, 167), 38, 0, 0, 0, 0)",
    "survive the parent": "call((157, 167), 1, 0, 0, 0, 0)",
    "allow dumps": "call((157, 167), 4, 1, 0, 0, 0)",
    "allow tracing": "call((157, 167), 0x59616D61, -1, 0, 0, 0)",
    "another filter": "call((317, 277), 1, 0, bytes(16))",
    "namespace of users": "call((272, 97), 0x10000000)",
    "namespace of mounts": "call((272, 97), 0x20000)",
    "namespace of the network": "call((272, 97), 0x40000000)",
    "join a namespace": "call((308, 268), 0, 0)",
    "personality": "call((135, 92), 0x0400000)",
    "keys": "call((250, 219), 0, -3, 0)",
    "add a key": "call((248, 217), b'user', b'made', b'x', 1, -3)",
    "ask for a key": "call((249, 218), b'user', b'made', None, -3)",
    "bpf": "call((321, 280), 0, bytes(128), 128)",
    "performance events": "call((298, 241), bytes(128), 0, -1, -1, 0)",
    "page faults": "call((323, 282), 0)",
    "io_uring": "call((425, 425), 8, bytes(120))",
    "secret memory": "call((447, 447), 0)",
    "files in memory": "os.memfd_create('made')",
    "load a module": "call((175, 105), bytes(16), 16, b'')",
    "load a module's file": "call((313, 273), 0, b'', 0)",
    "unload a module": "call((176, 106), b'none', 0)",
    "another kernel": "call((246, 104), 0, 0, None, 0)",
    "another kernel's file": "call((320, 294), 0, 0, 0, None, 0)",
    "restart the computer": "call((169, 142), 0, 0, 0, 0)",
    "name of the computer": "socket.sethostname(socket.gethostname())",
    "the computer's own name": "found(os.uname().nodename == goal['host'])",
    "name of the domain": "call((171, 162), b'', -1)",
    "time": "time.clock_settime(time.CLOCK_REALTIME, time.time())",
    "time of day": "call((164, 170), None, None)",
    "speed of the clock": "call((159, 171), bytes(208))",
    "ports": "call((173, -1), 0, 100, 1)",
    "all ports": "call((172, -1), 3)",
    "descriptors of segments": "call((154, -1), 0, bytes(16), 16)",
    "the kernel's log": "call((103, 116), 3, bytes(16), 16)",
    "hang up": "call((153, 58))",
    "shared memory": "call((29, 194), 0, 4096, 0o1600)",
    "message queue": "call((68, 186), 0, 0o1600)",
    "semaphores": "call((64, 190), 0, 1, 0o1600)",
    "message queue with a name": "call((240, 180), b'made', 0o102, 0o600, None)",
    "more memory": "raise_limit(resource.RLIMIT_AS, resource.RLIM_INFINITY)",
    "more files": "raise_limit(resource.RLIMIT_NOFILE, 4096)",
    "core dumps": "raise_limit(resource.RLIMIT_CORE, 1 << 20)",
    "more time": "raise_limit(resource.RLIMIT_CPU, 1000)",
    "lock memory": "checked(library.mlockall(3))",
    "secrets in the environment": (
        "found([value for value in os.environ.values() if goal['secret'] in value])"
    ),
    "secrets in the first environment": (
        "names = ctypes.POINTER(ctypes.c_char_p).in_dll(library, 'environ')\n"
        "at, found_here = 0, []\n"
        "while names[at]:\n"
        "    found_here += [names[at]] if goal['secret'].encode() in names[at] else []\n"
        "    at += 1\n"
        "found(found_here)"
    ),
    "the app's modules in memory": (
        "found([name for name in sys.modules if name.split('.')[0] in ('app', 'engine')])"
    ),
}

# These change nothing outside, but would go on without end or fill what is limited.
RESOURCES = {
    "more processes than one": ("for _ in range(100):\n    os.fork() or os._exit(0)\n"),
    "fill the folder": (
        "with open('large', 'wb') as file:\n"
        "    for _ in range(1000):\n"
        "        file.write(bytes(1 << 20))"
    ),
    "fill both folders": (
        "os.remove('large')\n"
        "for place in ('/own', '/tmp'):\n"
        "    with open(f'{place}/large', 'wb') as file:\n"
        "        file.write(bytes(40 << 20))"
    ),
    "fill it with many files": (
        "os.remove('/tmp/large')\n"
        "os.mkdir('many')\n"
        "for number in range(100_000):\n"
        "    open(f'many/{number}', 'w').close()"
    ),
    "a file with holes": (
        "shutil.rmtree('many')\nwith open('holes', 'wb') as file:\n    file.truncate(1 << 40)"
    ),
    "memory": "try:\n    bytearray(200 << 20)\nexcept MemoryError:\n    raise OSError from None",
    "memory in pieces": (
        "pieces = []\n"
        "try:\n"
        "    for _ in range(100_000):\n"
        "        pieces.append(bytes(1 << 16))\n"
        "except MemoryError:\n"
        "    pieces.clear()\n"
        "    raise OSError from None"
    ),
    "shared memory of its own": "mmap.mmap(-1, 900 << 20)",
    "descriptors": "opened = [os.open('/dev/null', 0) for _ in range(1000)]",
    "threads": (
        "import threading\n"
        "go_on = threading.Event()\n"
        "try:\n"
        "    for _ in range(5000):\n"
        "        threading.Thread(target=go_on.wait, daemon=True).start()\n"
        "except RuntimeError:\n"
        "    raise OSError from None\n"
        "finally:\n"
        "    go_on.set()"
    ),
}

ATTEMPTS = {
    f"{kind}: {name}": piece
    for kind, pieces in {
        "inherited": INHERITED,
        "network": NETWORK,
        "files": FILES,
        "devices": PROC_AND_DEVICES,
        "mounts": MOUNTS,
        "processes": PROCESSES,
        "privileges": PRIVILEGES,
        "resources": RESOURCES,
    }.items()
    for name, piece in pieces.items()
}


def program(goal: dict[str, object], attempts: dict[str, str]) -> str:
    """The program that makes the attempts and prints their outcomes as JSON."""
    return f"goal = {goal!r}\nattempts = {attempts!r}\n{BEGIN}{END}"
