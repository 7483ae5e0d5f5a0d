"""Pictures for tests: made here, put into files by hand, and described by a stand-in that knows them by their colour."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw

from tests.anthropic_wire import Received, Reply, says

COLOURS = {"crimson": (220, 20, 60), "teal": (0, 128, 128), "golden": (255, 215, 0), "orchid": (218, 112, 214)}
LONGEST_EDGE = 1_568
MOST_TOKENS = 1_600


def chart(colour: str, size: tuple[int, int] = (400, 300)) -> Image.Image:
    """A chart with bars on a ground of this colour."""
    image = Image.new("RGB", size, COLOURS[colour])
    draw = ImageDraw.Draw(image)
    width, height = size
    for number in range(4):
        left = width * (2 * number + 1) // 9
        draw.rectangle((left, height * (number + 1) // 6, left + width // 9, height * 5 // 6), fill="black")
    return image


def encoded(image: Image.Image, kind: str = "PNG") -> bytes:
    """The picture as a file."""
    out = io.BytesIO()
    image.save(out, kind)
    return out.getvalue()


def picture_in(received: Received) -> Image.Image:
    """The picture that a request shows, which keeps to what the service's documentation asks for."""
    block = received.last_content[0]
    assert (block["type"], block["source"]["media_type"]) == ("image", "image/jpeg")
    assert len(block["source"]["data"]) <= 5 * 1024 * 1024
    image = Image.open(io.BytesIO(base64.b64decode(block["source"]["data"], validate=True)), formats=("JPEG",))
    assert max(image.size) <= LONGEST_EDGE
    assert image.width * image.height / 750 <= MOST_TOKENS
    return image


def colour_of(image: Image.Image) -> str:
    """The colour of the ground that is nearest."""
    pixel = image.convert("RGB").getpixel((3, 3))
    assert isinstance(pixel, tuple)
    return min(COLOURS, key=lambda name: sum((a - b) ** 2 for a, b in zip(COLOURS[name], pixel, strict=True)))


def describe(received: Received) -> Reply:
    """A caption that depends on the picture alone."""
    return says(f"A bar chart on a {colour_of(picture_in(received))} ground shows four quarters.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PdfPage:
    """A page with a line of text and pictures, each at a place (left, bottom, width, height in points)."""

    text: str = ""
    pictures: Sequence[tuple[Image.Image, tuple[int, int, int, int]]] = ()


def pdf(*pages: PdfPage) -> bytes:
    """A PDF, written by hand (ISO 32000-1); pictures are stored as JPEGs."""
    objects: list[bytes] = [b"", b"", b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    kids = []
    for page in pages:
        drawn, named = [], []
        for number, (image, (left, bottom, width, height)) in enumerate(page.pictures):
            data = encoded(image, "JPEG")
            head = (
                f"<< /Type /XObject /Subtype /Image /Width {image.width} /Height {image.height} /ColorSpace /DeviceRGB"
                f" /BitsPerComponent 8 /Filter /DCTDecode /Length {len(data)} >>\nstream\n"
            )
            objects.append(head.encode() + data + b"\nendstream")
            named.append(f"/I{number} {len(objects)} 0 R")
            drawn.append(f"q {width} 0 0 {height} {left} {bottom} cm /I{number} Do Q")
        lines = [f"BT /F 11 Tf 50 {740 - 16 * place} Td ({line}) Tj ET" for place, line in enumerate(page.text.split("\n"))]
        content = "\n".join([*drawn, *(lines if page.text else [])]).encode()
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content))
        resources = f"<< /Font << /F 3 0 R >> /XObject << {' '.join(named)} >> >>"
        head = f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {len(objects)} 0 R /Resources {resources} >>"
        objects.append(head.encode())
        kids.append(f"{len(objects)} 0 R")
    objects[0] = b"<< /Type /Catalog /Pages 2 0 R >>"
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>".encode()
    out = bytearray(b"%PDF-1.4\n")
    offsets = []
    for number, content in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    start = len(out)
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}".encode()
    out += f"trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n".encode()
    return bytes(out)
