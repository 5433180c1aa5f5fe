#!/usr/bin/env python3
"""Puts `pergola serve` under strain and prints what came of it as JSON. Needs nothing but Python.

    server_endurance.py PERGOLA MODEL_FOLDER SCENARIO [--seconds N]

Scenarios:
  streams      64 streams of mixed lengths for N seconds: errors, greedy answers against their single runs, memory, throughput.
               A gap is the distance of the two largest log-probabilities of a token. Where an answer differs from its single
               run, the single run's gap at the first other token is at most the noise of gaps, which is measured on the equal
               tokens before
  flood        500 connections at once on 16 slots: what was answered, what got 429, memory
  disconnects  1,000 clients that leave at a random time: pages and slots in use in the end
  prefix       the same 2,000-token prompt twice: times to the first token, and whether the tokens are the same
  stall        running streams while 4,000-token prompts arrive: times between tokens
  overhead     one stream's decode speed against `pergola bench` of the same run
"""

import argparse
import asyncio
import json
import os
import random
import re
import statistics
import subprocess
import sys
import time

WORDS = "the a old young sea ship king wind hill road house river night morning said went saw came found lost under over with and but".split()


class Server:
    def __init__(self, program, folder, *options):
        command = [program, "serve", folder, "--port", "0", *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        said = []
        for line in self.process.stderr:
            said.append(line)
            found = re.search(r"serving '(.*)' on http://(\S+):(\d+)", line)
            if found:
                self.model, self.host, self.port = found[1], found[2], int(found[3])
                return
        raise RuntimeError("the server did not start: " + "".join(said))

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return int(re.search(r"VmRSS:\s+(\d+) kB", status.read())[1]) * 1024

    def stop(self):
        self.process.terminate()
        self.process.stderr.read()
        code = self.process.wait(timeout=120)
        if code != 0:
            raise RuntimeError(f"the server ended with exit code {code}")


async def connect(server):
    return await asyncio.open_connection(server.host, server.port)


def request_bytes(path, body):
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    return head.encode() + data


async def read_head(reader):
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    return int(head.split()[1]), "chunked" in head


async def complete(server, prompt, max_tokens, leave_after=None, **more):
    """One streamed completion: status, tokens with logprobs, when each came, usage. Leaves after some seconds if asked."""
    body = {"model": server.model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True}, **more}
    result = {"status": 0, "tokens": [], "gaps": [], "times": [], "done": False, "start": time.perf_counter()}
    reader, writer = await connect(server)
    try:
        writer.write(request_bytes("/v1/completions", body))
        result["status"], chunked = await read_head(reader)
        if not chunked:
            await reader.read()
            return result
        while True:
            if leave_after is not None and time.perf_counter() - result["start"] > leave_after:
                return result
            size = int(await reader.readline(), 16)
            data = await reader.readexactly(size + 2)
            if size == 0:
                return result
            now = time.perf_counter()
            for line in data.decode().split("\n"):
                if not line.startswith("data: "):
                    continue
                if line == "data: [DONE]":
                    result["done"] = True
                    continue
                event = json.loads(line[6:])
                if "error" in event:
                    return result
                if event.get("usage"):
                    result["usage"] = event["usage"]
                for choice in event["choices"]:
                    logprobs = choice.get("logprobs")
                    if logprobs:
                        result["tokens"] += logprobs["tokens"]
                        for top in logprobs["top_logprobs"]:
                            values = sorted(top.values(), reverse=True)
                            result["gaps"].append(values[0] - values[1] if len(values) > 1 else 99)
                    if choice["text"] or logprobs:
                        result["times"].append(now)
    except (asyncio.IncompleteReadError, ConnectionError):
        return result
    finally:
        writer.close()


async def get(server, path):
    reader, writer = await connect(server)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    await read_head(reader)
    text = (await reader.read()).decode()
    writer.close()
    return text


async def metrics(server):
    values = {}
    for line in (await get(server, "/metrics")).splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            values[name.removeprefix("pergola_")] = float(value)
    return values


def text_of(words, seed):
    source = random.Random(seed)
    return " ".join(source.choice(WORDS) for _ in range(words))


def token_prompt(tokens, seed):
    source = random.Random(seed)
    return [source.randrange(300, 3800) for _ in range(tokens)]


def slope_per_minute(samples):
    """Least squares, bytes a minute."""
    if len(samples) < 3:
        return 0.0
    mean_x = statistics.mean(x for x, _ in samples)
    mean_y = statistics.mean(y for _, y in samples)
    over = sum((x - mean_x) ** 2 for x, _ in samples)
    return 60 * sum((x - mean_x) * (y - mean_y) for x, y in samples) / over


async def streams(server, seconds):
    jobs = [(text_of(5 + 11 * i % 300, i), 16 + 7 * i % 120) for i in range(48)]
    alone, start = [], time.perf_counter()
    for prompt, tokens in jobs:
        alone.append(await complete(server, prompt, tokens, logprobs=2))
    alone_rate = sum(tokens for _, tokens in jobs) / (time.perf_counter() - start)
    await asyncio.sleep(0.5)
    memory, results = [], []
    begin = time.perf_counter()

    async def worker(number):
        source = random.Random(number)
        while time.perf_counter() - begin < seconds:
            job = source.randrange(len(jobs))
            results.append((job, await complete(server, *jobs[job], logprobs=2)))

    async def watch():
        while time.perf_counter() - begin < seconds:
            memory.append((time.perf_counter() - begin, server.resident_bytes()))
            await asyncio.sleep(max(0.5, seconds / 60))

    await asyncio.gather(watch(), *(worker(number) for number in range(64)))
    elapsed = time.perf_counter() - begin
    equal, gaps, noise = 0, [], []
    for job, result in results:
        expected = alone[job]
        equal += result["tokens"] == expected["tokens"]
        for a, b, gap, gap_alone in zip(result["tokens"], expected["tokens"], result["gaps"], expected["gaps"]):
            if a != b:
                gaps.append(gap_alone)
                break
            noise.append(abs(gap - gap_alone))
    noise.sort()
    settled = memory[len(memory) // 4 :]
    rate = sum(len(result["tokens"]) for _, result in results) / elapsed
    return {
        "seconds": round(elapsed), "answers": len(results), "failed": sum(not result["done"] for _, result in results),
        "equal_to_single_run": equal, "diverged": len(gaps), "largest_gap_at_divergence": round(max(gaps, default=0), 3),
        "noise_of_gaps": {name: round(noise[min(int(len(noise) * share), len(noise) - 1)], 4) for name, share in
                          {"median": 0.5, "p99": 0.99, "p99.9": 0.999, "largest": 1}.items()},
        "resident_bytes": [settled[0][1], settled[-1][1]], "resident_bytes_per_minute": round(slope_per_minute(settled)),
        "tokens_per_second": round(rate, 1), "tokens_per_second_alone": round(alone_rate, 1), "gain": round(rate / alone_rate, 2),
    }


async def flood(server, _):
    await complete(server, "warm up", 4)
    before = server.resident_bytes()
    results = await asyncio.gather(*(complete(server, text_of(30, i), 32) for i in range(500)))
    again = server.resident_bytes()
    accepted = [result for result in results if result["status"] == 200]
    await asyncio.gather(*(complete(server, text_of(30, i), 32) for i in range(500)))
    return {
        "connections": 500, "accepted": len(accepted), "accepted_and_failed": sum(not result["done"] for result in accepted),
        "status_429": sum(result["status"] == 429 for result in results),
        "other": sum(result["status"] not in (200, 429) for result in results),
        "resident_bytes": [before, again, server.resident_bytes()],
    }


async def disconnects(server, _):
    source = random.Random(4)
    gate = asyncio.Semaphore(64)

    async def one(number):
        async with gate:
            await complete(server, text_of(source.randrange(1, 400), number), 400, leave_after=source.random() * 0.4)

    await asyncio.gather(*(one(number) for number in range(1000)))
    start = time.perf_counter()
    while True:
        now = await metrics(server)
        if now["requests_running"] == 0 and now["requests_waiting"] == 0:
            break
        if time.perf_counter() - start > 30:
            raise RuntimeError("requests of clients that left still run after 30 seconds")
        await asyncio.sleep(0.01)
    steps = now["step_seconds_sum"] / now["step_seconds_count"]
    return {
        "clients": 1000, "cancelled": now['requests_finished_total{reason="cancelled"}'], "slots_in_use": now["slots_in_use"],
        "pages_in_use_beside_the_prefix_cache": now["kv_pages_in_use"] - now["kv_pages_cached"],
        "seconds_until_idle": round(time.perf_counter() - start, 3), "mean_step_seconds": round(steps, 4),
    }


async def prefix(server, _):
    cold, warm, same = [], [], True
    for i in range(5):
        prompt = token_prompt(2000, i)
        first = await complete(server, prompt, 16, logprobs=0)
        second = await complete(server, prompt, 16, logprobs=0)
        cold.append(first["times"][0] - first["start"])
        warm.append(second["times"][0] - second["start"])
        same = same and first["tokens"] == second["tokens"]
    return {"prompt_tokens": 2000, "cached_tokens": second["usage"]["prompt_tokens_details"]["cached_tokens"], "same_tokens": same,
            "cold_seconds": round(statistics.median(cold), 4), "cached_seconds": round(statistics.median(warm), 4),
            "share": round(statistics.median(warm) / statistics.median(cold), 3)}


async def stall(server, seconds):
    begin, gaps, prompts = time.perf_counter(), [], 0

    async def stream(number):
        while time.perf_counter() - begin < seconds:
            result = await complete(server, text_of(10, number), 1000)
            gaps.extend(b - a for a, b in zip(result["times"], result["times"][1:]))

    async def newcomers():
        nonlocal prompts
        while time.perf_counter() - begin < seconds:
            await complete(server, token_prompt(4000, 100 + prompts), 1)
            prompts += 1
            await asyncio.sleep(seconds / 20)

    await asyncio.gather(newcomers(), *(stream(number) for number in range(8)))
    gaps.sort()
    median, late = gaps[len(gaps) // 2], gaps[int(len(gaps) * 0.99)]
    return {"streams": 8, "prompts_of_4000_tokens": prompts, "tokens": len(gaps), "median_seconds": round(median, 5),
            "p99_seconds": round(late, 5), "ratio": round(late / median, 2)}


async def overhead(server, _, program=None, folder=None):
    def bench():
        out = subprocess.run([program, "bench", folder, "-p", "16", "-n", "256", "-r", "3", "--json"], capture_output=True, text=True, check=True).stdout
        return [test["tokens_per_second"]["median"] for test in json.loads(out)["tests"] if test["test"] == "decode"][0]

    rates, benches = [], []
    for i in range(5):  # alternating, so that a noisy neighbour hits both
        benches.append(bench())
        result = await complete(server, token_prompt(16, i), 257)
        rates.append((len(result["times"]) - 1) / (result["times"][-1] - result["times"][0]))
    return {"server_tokens_per_second": round(statistics.median(rates), 1), "bench_tokens_per_second": round(statistics.median(benches), 1),
            "share": round(statistics.median(a / b for a, b in zip(rates, benches)), 3)}


OPTIONS = {
    "streams": ["--max-sequences", "64", "--context", "1024"],
    "flood": ["--max-sequences", "16", "--context", "512"],
    "disconnects": ["--max-sequences", "16", "--context", "1024"],
    "prefix": ["--max-sequences", "2", "--context", "4096"],
    "stall": ["--max-sequences", "12", "--context", "8192"],
    "overhead": ["--max-sequences", "4", "--context", "1024"],
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("folder")
    parser.add_argument("scenario", choices=OPTIONS)
    parser.add_argument("--seconds", type=float, default=30)
    arguments = parser.parse_args()
    running = Server(arguments.program, arguments.folder, *OPTIONS[arguments.scenario])
    try:
        extra = {"program": arguments.program, "folder": arguments.folder} if arguments.scenario == "overhead" else {}
        outcome = asyncio.run(globals()[arguments.scenario](running, arguments.seconds, **extra))
    finally:
        running.stop()
    print(json.dumps({"scenario": arguments.scenario, **outcome}))
