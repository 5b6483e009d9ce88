"""tests/support/documented.py finds the commands of a page."""
import documented
from cases import expect

PAGE = """
Run `lockstep models`, never `rm`.

```sh
lockstep run job.yaml   # a minute
# a remark
helm upgrade lockstep \\
  --set a=b
```

1. An item:

    This is prose.

    ```console
    $ kubectl get dtj
    NAME   STATE
    ```

Back at the margin.

    lockstep validate job.yaml
    lockstep plot FOLDER

```yaml
    kind: Nothing
```
"""


def test_commands_of_fences_blocks_and_sentences():
    found = list(documented.commands(PAGE))
    expected = ["lockstep run job.yaml", "helm upgrade lockstep --set a=b", "kubectl get dtj", "lockstep validate job.yaml", "lockstep plot FOLDER"]
    expect(found == [*((command, False) for command in expected), ("lockstep models", True)], found)
