#!/usr/bin/env python3
"""Compiles every OpenCL kernel variant for Intel GPUs without having one, and reads the machine code.

Fails on scratch memory (spill_size or private_size), on a SIMD size or register count other than declared, on another number of matrix
instructions in the loop over tiles, and on more vector issue slots a weight than the variant table allows (src/backend/opencl/variants.h).

Counting (docs/opencl.md): the loop over tiles is the innermost loop with matrix instructions, else with 32 dot
products or multiplications. An instruction of execution size 1 or 2 is
scalar, `send` is memory, `sync` is not counted; every other one costs max(1, size * widest operand bits / 512) vector issue slots, a matrix
instruction one. A lane multiplies 32 weights an iteration.
"""
import argparse, concurrent.futures, csv, os, re, subprocess, sys, tempfile

FEATURES = '-cl-std=CL3.0 -DHAVE_DOT -DHAVE_SUBGROUPS -DHAVE_DPAS'
CODEBOOKS = ['3inst', 'mcg', 'mul1']
KERNELS = {'linear.cl': ['trellis_linear'], 'moe.cl': ['moe_gate_up', 'moe_down'], 'moe_decode.cl': ['moe_decode_down']}
WEIGHTS = 32
BITS = {'q': 64, 'uq': 64, 'df': 64, 'ud': 32, 'd': 32, 'f': 32, 'uw': 16, 'w': 16, 'hf': 16, 'ub': 16, 'b': 16}


def instructions(path):
    labels, code = {}, []
    for line in open(path):
        line = line.strip()
        label = re.match(r'(L\d+):', line)
        if label:
            labels[label.group(1)] = len(code)
        elif line:
            code.append(line)
    return labels, code


def innermost_loops(labels, code):
    loops = []
    for at, text in enumerate(code):
        if re.search(r'\b(jmpi|goto|while)\b', text):
            loops += [(labels[l], at) for l in re.findall(r'L\d+', text) if labels.get(l, at + 1) <= at]
    return [a for a in loops if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in loops)]


def count(code):
    result = {'vector': 0.0, 'scalar': 0, 'memory': 0, 'mul': 0, 'dp4a': 0, 'dpas': 0}
    for text in code:
        match = re.match(r'(?:\([^)]*\))?\s*([a-z0-9_.]+)\s*(?:\((\d+)\|M\d+\))?', text)
        if not match:
            continue
        operation, size = match.group(1).split('.')[0], int(match.group(2) or 1)
        if operation == 'sync':
            continue
        if operation in ('send', 'sends'):
            result['memory'] += 1
        elif size <= 2:
            result['scalar'] += 1
        else:
            types = re.findall(r':(uq|q|df|ud|d|f|uw|w|hf|ub|b)\b', text.split('//')[0])
            widest = max([BITS[t] for t in types] or [32])
            result['vector'] += 1 if operation == 'dpas' else max(1, size * widest / 512)
            if operation in ('mul', 'dp4a', 'dpas'):
                result[operation] += 1
    return result


def check(job):
    """One file, set of options and kind for one device: a row for each kernel, and what is wrong with it."""
    ocloc, kernels, device, (file, options, registers, dpas, *ceilings), kind = job
    codebook, bits = kind // 8, kind % 8 + 1
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        build = f'{FEATURES} {options} -DKINDS={1 << kind:#x} -I {kernels}'
        if registers == '256':
            build += ' -cl-intel-256-GRF-per-thread'
        subprocess.run([ocloc, 'compile', '-q', '-file', os.path.join(kernels, file), '-device', device, '-options', build, '-output', 'k',
                        '-output_no_suffix'], cwd=folder, check=True, capture_output=True, text=True)
        subprocess.run([ocloc, 'disasm', '-file', 'k.bin', '-device', device, '-dump', 'dump'], cwd=folder, check=True, capture_output=True)
        info = open(f'{folder}/dump/.ze_info').read()
        for kernel in KERNELS[file]:
            start = info.index(f'name:            {kernel}')
            own = info[start:info.find('\n  - name:', start) if '\n  - name:' in info[start:] else None]
            value = lambda key: (re.search(key + r':\s+(\d+)', own) or [None, '0'])[1]
            labels, code = instructions(f'{folder}/dump/.text.{kernel}.asm')
            counted = [count(code[a:b + 1]) for a, b in innermost_loops(labels, code)]
            of = lambda key, least: [c for c in counted if c[key] >= least]
            loops = of('dpas', 1) or (of('dp4a', WEIGHTS) if codebook == 2 else []) or of('mul', WEIGHTS) or counted
            loop = max(loops, key=lambda c: c['vector'])
            slots = loop['vector'] / WEIGHTS
            everything = (loop['vector'] + loop['scalar'] + loop['memory']) / WEIGHTS
            wrong = []
            for key in ('spill_size', 'private_size'):
                if value(key) != '0':
                    wrong.append(f'{key} {value(key)}')
            if value('simd_size') != '16':
                wrong.append(f'SIMD {value("simd_size")} instead of 16')
            if device.startswith(('lnl', 'bmg')) and value('grf_count') != registers:
                wrong.append(f'{value("grf_count")} registers instead of {registers}')
            expected = int(dpas) if codebook == 2 or dpas == '0' else int(re.search(r'ROWS=(\d+)', options)[1]) // 8 * 4
            if loop['dpas'] != expected:
                wrong.append(f'{loop["dpas"]} matrix instructions instead of {expected}')
            ceiling = float(ceilings[2 - codebook]) * (1.0 if bits == 4 else 1.2)
            if slots > ceiling:
                wrong.append(f'{slots:.2f} slots a weight, more than {ceiling:.2f}')
            rows.append([device, kernel, options, CODEBOOKS[codebook], bits, value('grf_count'), loop['dpas'], f'{slots:.2f}',
                         f'{everything:.2f}', '; '.join(wrong) or 'ok'])
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--ocloc', required=True)
    parser.add_argument('--variants', required=True, help='output of tools/opencl_variants.cc')
    parser.add_argument('--kernels', default='src/backend/opencl/kernels')
    parser.add_argument('--devices', default='lnl-m,bmg-g21,bmg-g31,ptl-h')
    parser.add_argument('--bits', default='4,1,2,3,5,6,7,8', help='which K, in this order')
    parser.add_argument('--files', default='linear.cl,moe.cl,moe_decode.cl')
    parser.add_argument('--jobs', type=int, default=os.cpu_count())
    parser.add_argument('-o', '--output', help='CSV of every result')
    arguments = parser.parse_args()
    variants = [line.strip().split('|') for line in open(arguments.variants)]
    kernels = os.path.abspath(arguments.kernels)
    jobs = [(arguments.ocloc, kernels, device, variant, codebook * 8 + int(bits) - 1)
            for bits in arguments.bits.split(',') for device in arguments.devices.split(',') for variant in variants
            if variant[0] in arguments.files.split(',') for codebook in (2, 1, 0)]
    failed = done = 0
    output = open(arguments.output, 'w', newline='') if arguments.output else None
    writer = csv.writer(output) if output else None
    if writer:
        writer.writerow(['device', 'kernel', 'options', 'codebook', 'K', 'registers', 'dpas', 'vector slots a weight', 'all slots a weight',
                         'result'])
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for job, future in [(job, pool.submit(check, job)) for job in jobs]:
            try:
                rows = future.result()
            except subprocess.CalledProcessError as error:
                rows = [[job[2], job[3][0], job[3][1], CODEBOOKS[job[4] // 8], job[4] % 8 + 1, '', '', '', '',
                         'does not compile: ' + ' '.join((error.stderr or error.stdout or '').split())[:300]]]
            for row in rows:
                if row[-1] != 'ok':
                    failed += 1
                    print(*row, sep='  ')
                if writer:
                    writer.writerow(row)
                    output.flush()
            done += 1
            if done % 20 == 0:
                print(f'{done} of {len(jobs)} programs', file=sys.stderr)
    print(f'{done} programs, {failed} kernels beyond what is declared')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
