"""Stands in for docker, podman or finch: notes how it is called, and does what the scenario beside it says."""

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main(arguments: list[str]) -> int:
    scenario = json.loads((HERE / "scenario.json").read_text())
    stdin = sys.stdin.read() if "--password-stdin" in arguments else None
    with (HERE / "calls.jsonl").open("a") as calls:
        calls.write(json.dumps({"arguments": arguments, "stdin": stdin}) + "\n")
    if arguments[:2] == ["image", "inspect"]:
        if scenario["image_id"] is None:
            return 1
        print(scenario["image_id"])
        return 0
    verb = next(word for word in arguments if word in ("build", "login", "tag", "push", "version"))
    if verb == "build":
        folder = Path(arguments[-1])
        files = {str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*") if file.is_file()}
        (HERE / "built.json").write_text(json.dumps(files))
    result = scenario.get(verb, {})
    print(result.get("output", ""), file=sys.stderr)
    return int(result.get("exit_code", 0))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
