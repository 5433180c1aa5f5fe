#!/usr/bin/env python3
"""Whether `pergola serve` keeps its hands off the GPU's memory once it runs: used before and after N requests, as JSON. Exit code 1 if it grew.

    gpu_memory.py PERGOLA MODEL_FOLDER [--requests N] [--backend cuda]

Nobody else may use the GPU meanwhile. Needs nothing but Python and nvidia-smi.
"""

import argparse
import http.client
import json
import random
import re
import subprocess
import sys
import threading


def used_mib():
    """Memory in use on the first GPU."""
    out = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], capture_output=True, text=True, check=True).stdout
    return int(out.split()[0])


def start(program, folder, backend):
    """The server and its address, once it says that it listens."""
    process = subprocess.Popen([program, "serve", folder, "--port", "0", "--backend", backend], stderr=subprocess.PIPE, text=True)
    said = []
    for line in process.stderr:
        said.append(line)
        if found := re.search(r"serving '(.*)' on http://(\S+):(\d+)", line):
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return process, found[1], found[2], int(found[3])
    raise RuntimeError("the server did not start: " + "".join(said))


def ask(host, port, model, count, seed, failures):
    """`count` requests, one after the other, of different lengths."""
    chance = random.Random(seed)
    for _ in range(count):
        connection = http.client.HTTPConnection(host, port, timeout=120)
        body = {"model": model, "prompt": "once upon a time " * chance.randint(1, 20), "max_tokens": chance.randint(1, 16), "temperature": 0}
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
        connection.close()
        if response.status != 200:
            failures.append(response.status)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("folder")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--backend", default="cuda")
    arguments = parser.parse_args()
    process, model, host, port = start(arguments.program, arguments.folder, arguments.backend)
    failures = []

    def load(requests, clients=16):
        threads = [threading.Thread(target=ask, args=(host, port, model, requests // clients + (i < requests % clients), i, failures)) for i in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    try:
        load(32)  # whatever is loaded at first use has been
        before = used_mib()
        load(arguments.requests)
        after = used_mib()
    finally:
        process.terminate()
        process.wait(timeout=60)
    print(json.dumps({"requests": arguments.requests, "failed": len(failures), "mib_before": before, "mib_after": after}))
    sys.exit(0 if after <= before and not failures else 1)


if __name__ == "__main__":
    main()
