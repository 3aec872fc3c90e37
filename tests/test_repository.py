"""The files around the book: environment, lock, workflow, licences, and what no file may contain."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
WORKFLOW = ".github/workflows/book.yml"

# Spelled in parts, because no file may name a registry, and this one is checked too.
PYTORCH_INDEX = "download." + "pytorch.org"
REGISTRIES = ["pypi." + "org", "pythonhosted." + "org", "npmjs." + "org", "npmjs." + "com", "anaconda." + "org"]


def read(name):
    return (ROOT / name).read_text("utf-8")


def project_files():
    """What belongs to the repository: committed, or about to be."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listing.returncode == 0:
        files = [ROOT / name for name in listing.stdout.split("\0") if name]
    else:  # an unpacked archive
        folders = ["lmlib", "book", "tests", "benchmarks", ".ci", ".github"]
        files = [*ROOT.iterdir(), *(path for folder in folders for path in (ROOT / folder).rglob("*"))]
    return sorted(path for path in files if path.is_file() and "__pycache__" not in path.parts)


# --- environment.yml, and lmlib installed from it and from a notebook ---------------------------------------


def pip_lines(environment):
    return next(item["pip"] for item in environment["dependencies"] if isinstance(item, dict))


def is_project(line):
    return line.split()[-1] == "."


def environment_complaints(text):
    """What is wrong with environment.yml."""
    environment = yaml.safe_load(text)
    complaints = [
        f"environment.yml: add {line!r} to the dependencies"
        for line in ["python=3.11", "pip"]
        if line not in environment["dependencies"]
    ]
    lines = pip_lines(environment)
    if "-r requirements.lock" not in lines:
        complaints.append("environment.yml: install the lock with the pip line '-r requirements.lock'")
    if sum(is_project(line) for line in lines) != 1:
        complaints.append("environment.yml: install this project with one pip line '-e .'")
    others = [line for line in lines if not line.startswith("-")]
    names = {Requirement(line).name for line in others}
    complaints += [
        f"environment.yml: add {name} to the pip lines"
        for name in ["jupyterlab", "jupyterlab-myst"]
        if name not in names
    ]
    return complaints


def test_environment():
    assert environment_complaints(read("environment.yml")) == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("python=3.11", "python"),
        ("- pip\n", "- pipx\n"),
        ("-r requirements.lock", "-r requirements.txt"),
        ("-e .", "lmlib"),
        ("jupyterlab-myst", "jupyterlab-git"),
    ],
)
def test_environment_check_notices(right, wrong):
    assert right in read("environment.yml")
    assert len(environment_complaints(read("environment.yml").replace(right, wrong))) == 1


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of what pip reads to install lmlib, so that building it leaves nothing in the repository."""
    root = tmp_path_factory.mktemp("project")
    for name in ["pyproject.toml", "README.md", "LICENSE"]:
        shutil.copy(ROOT / name, root)
    shutil.copytree(ROOT / "lmlib", root / "lmlib", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "book").mkdir()
    return root


def install(folder, arguments, venv):
    """Run pip with `arguments` in `folder`, into a fresh environment, without a network; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    python = venv / "bin" / "python"
    # pip and setuptools are borrowed from the environment that runs the tests
    borrowed = {**os.environ, "PYTHONPATH": str(Path(sys.modules["pytest"].__file__).parents[1])}
    pip_install = [python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip_install, "--ignore-installed", *arguments], cwd=folder, env=borrowed, check=True)
    return python


def place_of_lmlib(python, folder):
    code = "import lmlib.corpora as c; assert c.load_corpus('moby_dick'); print(c.__file__)"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([python, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


def test_the_environments_project_line_installs_lmlib(project, tmp_path):
    line = next(filter(is_project, pip_lines(yaml.safe_load(read("environment.yml")))))
    python = install(project, line.split(), tmp_path / "venv")
    assert place_of_lmlib(python, tmp_path) == project / "lmlib" / "corpora" / "__init__.py"


def test_a_notebooks_install_cell_finds_the_repository(project, tmp_path):
    line = next(line for line in read("book/_ext/repository_links.py").splitlines() if line.startswith("INSTALL_LINE"))
    address = re.search(r'LMLIB = "(.+?)"', line)[1]
    python = install(project / "book", [address], tmp_path / "venv")
    assert place_of_lmlib(python, tmp_path).is_relative_to(tmp_path / "venv")


# --- pyproject.toml and requirements.lock ------------------------------------------------------------------


def declared_requirements(pyproject):
    project = pyproject["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    requirements = [Requirement(line) for lines in lists for line in lines]
    return [requirement for requirement in requirements if requirement.name != project["name"]]


def lock_complaints(pyproject, lock):
    """Where requirements.lock is not a list of exact versions that satisfies pyproject.toml."""
    complaints, versions = [], {}
    for line in lock.splitlines():
        if match := re.fullmatch(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.!]+)", line):
            versions[canonicalize_name(match[1])] = match[2]
        else:
            complaints.append(f"requirements.lock: write {line!r} as name==version, without a local version")
    for requirement in declared_requirements(pyproject):
        if not any(bound.operator == ">=" for bound in requirement.specifier):
            complaints.append(f"pyproject.toml: give {requirement.name} a lower bound")
        version = versions.get(canonicalize_name(requirement.name))
        if version is None:
            complaints.append(f"requirements.lock: {requirement.name} is missing; run `make lock`")
        elif version not in requirement.specifier:
            complaints.append(f"requirements.lock: {requirement.name} {version} is not {requirement.specifier}")
    return complaints


def test_lock():
    assert lock_complaints(tomllib.loads(read("pyproject.toml")), read("requirements.lock")) == []


@pytest.mark.parametrize(
    ("file", "pattern", "replacement", "complaint"),
    [
        ("pyproject.toml", r'"numpy>=[^"]+"', '"numpy"', "pyproject.toml: give numpy a lower bound"),
        ("requirements.lock", r"(?m)^numpy==.*\n", "", "requirements.lock: numpy is missing; run `make lock`"),
        ("requirements.lock", r"(?m)^numpy==.*", "numpy==1.0", "requirements.lock: numpy 1.0 is not >=1.26"),
        ("requirements.lock", r"(?m)^(torch==.*)", r"\1+cpu", "write 'torch=="),
        ("requirements.lock", r"(?m)^regress==", "regress>=", "write 'regress>="),
        ("requirements.lock", r"(?m)^regress==", "-e git+regress==", "write '-e git"),
    ],
)
def test_lock_check_notices(file, pattern, replacement, complaint):
    texts = {name: read(name) for name in ["pyproject.toml", "requirements.lock"]}
    texts[file], changes = re.subn(pattern, replacement, texts[file])
    assert changes == 1
    complaints = lock_complaints(tomllib.loads(texts["pyproject.toml"]), texts["requirements.lock"])
    assert any(complaint in one for one in complaints)


# --- the workflow and .ci/run ------------------------------------------------------------------------------


def schema_complaints(schema, path):
    """What check-jsonschema says about `path`, with a schema that it carries itself."""
    command = [BIN / "check-jsonschema", "--builtin-schema", schema, "--output-format", "text", path]
    done = subprocess.run(command, capture_output=True, text=True)
    return [] if done.returncode == 0 else [done.stdout + done.stderr]


def workflow_complaints(text):
    """Where the workflow does not do what it is for."""
    workflow = yaml.safe_load(text)
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    complaints = []
    if not any(step.get("run", "").strip() == ".ci/run" for step in steps):
        complaints.append(f"{WORKFLOW}: add a step that runs .ci/run")
    allowed = {PYTORCH_INDEX, "github.com"}
    hosts = set(re.findall(r"https?://(?:[^/\s@\"]*@)?([A-Za-z0-9.-]+)", text))
    complaints += [f"{WORKFLOW}: {host} is not a host that the workflow may name" for host in sorted(hosts - allowed)]
    if "grep '^torch==' requirements.lock" not in text or re.search(r"torch==\d", text):
        complaints.append(f"{WORKFLOW}: take torch's version from requirements.lock")
    writers = [name for name, job in workflow["jobs"].items() if job.get("permissions", {}).get("contents") == "write"]
    if workflow["permissions"] != {"contents": "read"} or writers != ["publish"]:
        complaints.append(f"{WORKFLOW}: only the job that publishes may write")
    if "push" not in workflow["jobs"]["publish"]["if"] or "refs/heads/main" not in workflow["jobs"]["publish"]["if"]:
        complaints.append(f"{WORKFLOW}: publish only what is pushed to main")
    return complaints


@pytest.mark.parametrize("schema", ["vendor.github-workflows", "custom.github-workflows-require-timeout"])
def test_workflow_has_the_schema(schema):
    assert schema_complaints(schema, ROOT / WORKFLOW) == []


def test_workflow_schema_check_notices_a_wrong_key(tmp_path):
    wrong = tmp_path / "book.yml"
    wrong.write_text(read(WORKFLOW).replace("runs-on:", "runs_on:"))
    assert "runs_on" in schema_complaints("vendor.github-workflows", wrong)[0]


def test_workflow():
    assert workflow_complaints(read(WORKFLOW)) == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("run: .ci/run", "run: make book"),
        (PYTORCH_INDEX, "registry.example"),
        ("$(grep '^torch==' requirements.lock)", "torch==2.13.0"),
        ("contents: read", "contents: write"),
        ("== 'refs/heads/main'", "!= ''"),
    ],
)
def test_workflow_check_notices(right, wrong):
    assert right in read(WORKFLOW)
    assert len(workflow_complaints(read(WORKFLOW).replace(right, wrong))) == 1


def test_publishing_leaves_one_commit_with_the_site(tmp_path):
    steps = yaml.safe_load(read(WORKFLOW))["jobs"]["publish"]["steps"]
    script = next(step["run"] for step in steps if "git push" in step.get("run", ""))
    remote = tmp_path / "some-one" / "book.git"
    subprocess.run(["git", "init", "--quiet", "--bare", remote], check=True)
    environment = os.environ | {
        "GITHUB_REPOSITORY": "some-one/book",
        "GITHUB_SHA": "0123abc",
        "GITHUB_TOKEN": "a-token",
        # what would go to GitHub goes to `remote`
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{tmp_path}/.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://x-access-token:a-token@github.com/",
    }
    for page in ["old.html", "new.html"]:
        site = tmp_path / page.removesuffix(".html")
        (site / "_sources").mkdir(parents=True)
        (site / "_sources" / "01.ipynb").touch()
        (site / page).touch()
        subprocess.run(["bash", "-e", "-c", script], cwd=site, env=environment, check=True)

    def git(*arguments):
        done = subprocess.run(["git", "-C", remote, *arguments], capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    assert git("log", "--format=%s", "gh-pages") == ["Publish 0123abc"]
    assert git("ls-tree", "-r", "--name-only", "gh-pages") == [".nojekyll", "_sources/01.ipynb", "new.html"]


def run_ci(tmp_path, *, user, commands, make="exit 0"):
    """Run .ci/run with nothing but recording stand-ins on the path; return its result and what it called."""
    log = tmp_path / "log"
    log.touch()
    stand_ins = {name: "exit 0" for name in commands} | {"id": f"echo {user}", "make": make}
    if "sudo" in commands:
        stand_ins["sudo"] = '"$@"'
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for name, body in stand_ins.items():
        note = "" if name == "id" else f'echo "CI=${{CI:-}} {name} $*" >> {log}\n'
        (bin_folder / name).write_text(f"#!/bin/sh\n{note}{body}\n")
        (bin_folder / name).chmod(0o755)
    for name in ["bash", "dirname", "env"]:
        (bin_folder / name).symlink_to(shutil.which(name))
    done = subprocess.run([ROOT / ".ci" / "run"], env={"PATH": str(bin_folder)}, capture_output=True, text=True)
    return done, log.read_text().splitlines()


UPDATE = "CI= apt-get update --quiet"
INSTALL = "CI= apt-get install --yes --quiet --no-install-recommends chromium"
CHECKS = ["CI=true make lint", "CI=true make test"]


@pytest.mark.parametrize("browser", ["chromium", "chromium-browser", "google-chrome"])
def test_ci_where_a_browser_is_installed(tmp_path, browser):
    done, calls = run_ci(tmp_path, user=1000, commands=[browser])
    assert (done.returncode, calls) == (0, CHECKS)


def test_ci_installs_chromium_as_root(tmp_path):
    done, calls = run_ci(tmp_path, user=0, commands=["apt-get"])
    assert (done.returncode, calls) == (0, [UPDATE, INSTALL, *CHECKS])


def test_ci_installs_chromium_with_sudo(tmp_path):
    done, calls = run_ci(tmp_path, user=1000, commands=["apt-get", "sudo"])
    assert done.returncode == 0
    assert [call for call in calls if "sudo" not in call] == [UPDATE, INSTALL, *CHECKS]
    assert sum("sudo" in call for call in calls) == 2


def test_ci_without_chromium_and_without_a_way_to_install_it(tmp_path):
    done, calls = run_ci(tmp_path, user=1000, commands=["apt-get"])
    assert done.returncode != 0
    assert "install it as root with 'apt-get install chromium'" in done.stderr
    assert calls == []


def test_ci_stops_at_the_first_failure(tmp_path):
    done, calls = run_ci(tmp_path, user=0, commands=["chromium"], make="exit 2")
    assert (done.returncode, calls) == (2, CHECKS[:1])


# --- licence, citation, make help --------------------------------------------------------------------------


def test_licence_covers_code_and_text():
    licence = " ".join(read("LICENSE").split())
    for part in [
        "Copyright (c) 2026 the lmlib contributors",
        "Permission is hereby granted, free of charge, to any person obtaining a copy",
        'THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND',
        "Creative Commons Attribution 4.0 International",
        "https://creativecommons.org/licenses/by/4.0/legalcode",
    ]:
        assert part in licence


def citation_complaints(text, project, book_title):
    """Where CITATION.cff says something else than the rest of the repository."""
    citation = yaml.safe_load(text)
    complaints = []
    if citation["version"] != project["version"]:
        complaints.append(f"CITATION.cff: the version is {project['version']}, as in pyproject.toml")
    if citation["authors"] != project["authors"]:
        complaints.append("CITATION.cff: name the authors as pyproject.toml does")
    if citation["license"] != project["license"]:
        complaints.append("CITATION.cff: give the licence as pyproject.toml does")
    if not citation["title"].startswith(f"{book_title}: "):
        complaints.append(f"CITATION.cff: start the title with that of _config.yml, {book_title!r}")
    if "url" in citation or "repository-code" in citation:
        complaints.append("CITATION.cff: leave addresses out, the repository does not know its own")
    return complaints


def test_citation():
    assert schema_complaints("vendor.citation-file-format", ROOT / "CITATION.cff") == []
    project = tomllib.loads(read("pyproject.toml"))["project"]
    assert citation_complaints(read("CITATION.cff"), project, yaml.safe_load(read("_config.yml"))["title"]) == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("\nversion: ", "\nversion: 9."),
        ("lmlib contributors", "contributors"),
        ("MIT\n", "Apache-2.0\n"),
        ("Counting", "Guessing"),
        ("type: software", "url: https://example.org"),
    ],
)
def test_citation_check_notices(right, wrong):
    project = tomllib.loads(read("pyproject.toml"))["project"]
    text = read("CITATION.cff")
    assert right in text
    assert (
        len(citation_complaints(text.replace(right, wrong), project, yaml.safe_load(read("_config.yml"))["title"])) == 1
    )


def help_complaints(makefile):
    """The commands of `makefile` that carry a description but are not listed by `make help`."""
    listed = subprocess.run(["make", "--file", makefile, "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    described = re.findall(r"^([^\s:#]+):(?!=).*## (.+)$", makefile.read_text("utf-8"), flags=re.MULTILINE)
    assert described
    return [
        f"Makefile: `make help` does not list {target}"
        for target, description in described
        if not re.search(rf"^{re.escape(target)} +{re.escape(description)}$", listed.stdout, flags=re.MULTILINE)
    ]


def test_make_help_lists_every_described_command():
    assert help_complaints(ROOT / "Makefile") == []


def test_make_help_check_notices_an_unlisted_command(tmp_path):
    makefile = tmp_path / "Makefile"
    makefile.write_text(read("Makefile") + "\nCamelCase: ## a name that help does not expect\n")
    assert help_complaints(makefile) == ["Makefile: `make help` does not list CamelCase"]


def test_every_command_is_described():
    makefile = read("Makefile")
    for target in re.search(r"^\.PHONY:(.*)$", makefile, flags=re.MULTILINE)[1].split():
        assert re.search(rf"^{target}:.*## ", makefile, flags=re.MULTILINE), f"Makefile: describe {target} with ##"


def make(*arguments, **environment):
    """What make says; its environment is this one's with some variables set."""
    return subprocess.run(["make", *arguments], cwd=ROOT, capture_output=True, text=True, env=os.environ | environment)


def test_make_clean_removes_no_other_environment():
    for said in [make("--dry-run", "clean", "VENV=elsewhere"), make("--dry-run", "clean", VENV="elsewhere")]:
        assert said.returncode == 0
        assert "rm -rf _build .venv" in said.stdout
        assert "rm -rf _build elsewhere" not in said.stdout


@pytest.mark.parametrize("path", ["with space", ""])
def test_make_refuses_an_environment_without_one_plain_path(path):
    said = make("--dry-run", "book", f"VENV={path}")
    assert said.returncode != 0
    assert "VENV must be one path without spaces" in said.stderr


def test_make_keeps_out_what_changes_how_notebooks_run():
    said = make("--eval", "show: ; @env", "show", MPLBACKEND="Agg", PYTHONOPTIMIZE="1", JUPYTER_PATH="elsewhere")
    variables = dict(line.split("=", 1) for line in said.stdout.splitlines() if "=" in line)
    assert not {"MPLBACKEND", "PYTHONOPTIMIZE"} & variables.keys()
    assert variables["JUPYTER_PATH"] == ""
    assert variables["IPYTHONDIR"].startswith(str(ROOT))


def test_a_failed_lock_leaves_the_old_one(tmp_path):
    for name in ["Makefile", "requirements.lock", "pyproject.toml"]:
        shutil.copy(ROOT / name, tmp_path)
    python = tmp_path / "python"  # makes an environment in which everything but `pip freeze` works
    python.write_text(
        '#!/bin/sh\nmkdir -p "$3/bin" && printf \'#!/bin/sh\\n[ "$3" != freeze ]\\n\' > "$3/bin/python"'
        ' && chmod +x "$3/bin/python"\n'
    )
    python.chmod(0o755)
    said = subprocess.run(["make", "lock", f"PYTHON={python}"], cwd=tmp_path, capture_output=True, text=True)
    assert said.returncode != 0, said.stdout
    assert "freeze" in said.stdout
    assert (tmp_path / "requirements.lock").read_text() == read("requirements.lock")


# --- what no file of the repository may contain ------------------------------------------------------------

MACHINE_PATH = re.compile(r"(?<![\w.~)}>-])/(?:" + "|".join(["work", "root", "home", "Users"]) + r")/[\w.]")
VENDORED_SUFFIXES = {".js", ".map", ".woff", ".woff2", ".ttf", ".otf", ".eot", ".whl", ".gz", ".zip"}
VENDORED_FOLDERS = {"node_modules", "vendor", "third_party", "site-packages", "dist"}


def content_complaints(name, data):
    """What the file called `name` contains and should not."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return []
    complaints = [
        f"{name}: take out {host}; the repository names no package registry"
        for host in [*REGISTRIES, PYTORCH_INDEX]
        if host in text and (name, host) != (WORKFLOW, PYTORCH_INDEX)
    ]
    for number, line in enumerate(text.splitlines(), start=1):
        if match := MACHINE_PATH.search(line):
            complaints.append(f"{name}, line {number}: {match[0]}… is a path of one machine; make it relative")
    return complaints


def vendoring_complaints(name):
    """Why the file called `name` looks like somebody else's."""
    path = Path(name)
    if path.suffix in VENDORED_SUFFIXES or ".min." in path.name or VENDORED_FOLDERS & set(path.parts):
        return [f"{name}: take it from an installed package when the book is built, instead of keeping a copy"]
    return []


def test_files_speak_of_the_project_alone():
    files = project_files()
    assert ROOT / "Makefile" in files
    names = [path.relative_to(ROOT).as_posix() for path in files]
    complaints = [line for name in names for line in content_complaints(name, (ROOT / name).read_bytes())]
    complaints += [line for name in names for line in vendoring_complaints(name)]
    assert complaints == []


@pytest.mark.parametrize("path", ["work/main/book", "root/.cache", "home/somebody/x", "Users/somebody"])
@pytest.mark.parametrize("before", ["", "see ", '"', "file://", "("])
def test_content_check_notices_a_machine_path(before, path):
    assert len(content_complaints("README.md", f"first\n{before}/{path}".encode())) == 1


@pytest.mark.parametrize("text", ["https://example.org/work/x", "../home/x", "$(HOME)/work/x", "/usr/bin/chromium"])
def test_content_check_leaves_other_paths_alone(text):
    assert content_complaints("README.md", text.encode()) == []


@pytest.mark.parametrize("host", [*REGISTRIES, PYTORCH_INDEX])
def test_content_check_notices_a_registry(host):
    assert len(content_complaints("README.md", f"https://{host}/simple".encode())) == 1


@pytest.mark.parametrize("name", ["book/_static/mathjax.js", "book/_static/a.min.css", "vendor/x.py", "a/font.woff2"])
def test_vendoring_check_notices(name):
    assert len(vendoring_complaints(name)) == 1
