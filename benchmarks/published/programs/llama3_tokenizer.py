"""An untrained tokenizer in the format of Llama 3's own ``tokenizer.model``: 128,000 ranks, as tiktoken reads them.

    python llama3_tokenizer.py FILE

The first 256 tokens are the bytes, which is all that tiktoken requires; the others are pairs and triples of letters, in
an order that it can merge.
"""

import base64
import itertools
import string
import sys
from pathlib import Path

SIZE = 128_000


def main() -> None:
    letters = (string.ascii_lowercase + string.ascii_uppercase + string.digits + " ").encode()
    tokens = [bytes((one,)) for one in range(256)]
    for length in (2, 3):
        tokens += [bytes(one) for one in itertools.product(letters, repeat=length)]
    lines = (f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens[:SIZE]))
    file = Path(sys.argv[1])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(lines))


if __name__ == "__main__":
    main()
