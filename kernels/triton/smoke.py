"""Proves that Triton compiles a kernel with a matrix product for this GPU, and that it computes what it should.

Usage: smoke.py GPU. Run by probes/run_gpu_program.py in the server's interpreter, with an empty cache; as long as importing torch
takes and some seconds, 32 KiB of GPU memory besides the context. Needs a C compiler and Python's headers, as every server does
that uses Triton.
"""

import sys

try:
    import torch
    import triton
    import triton.language as tl
except ImportError as error:
    print(error)
    sys.exit(5)

SIZE = 64


@triton.jit
def multiply(left, right, out, size: tl.constexpr):
    rows = tl.arange(0, size)[:, None]
    columns = tl.arange(0, size)[None, :]
    product = tl.dot(tl.load(left + rows * size + columns), tl.load(right + rows * size + columns))
    tl.store(out + rows * size + columns, product)


def main():
    device = torch.device("cuda", int(sys.argv[1]))
    # Small whole numbers: their products are exact in whatever precision the tensor cores add them up.
    left = torch.randint(-4, 5, (SIZE, SIZE), dtype=torch.float16, device=device)
    right = torch.randint(-4, 5, (SIZE, SIZE), dtype=torch.float16, device=device)
    out = torch.zeros((SIZE, SIZE), dtype=torch.float32, device=device)
    with torch.cuda.device(device):
        multiply[(1,)](left, right, out, SIZE)
    wrong = int((out.cpu() != left.cpu().float() @ right.cpu().float()).sum())
    if wrong:
        print(f"{wrong} of {SIZE * SIZE} products are wrong")
        sys.exit(2)
    print(f"passed, Triton {triton.__version__}")


if __name__ == "__main__":
    main()
