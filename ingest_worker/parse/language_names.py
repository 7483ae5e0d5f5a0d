"""Which file names belong to which grammar: by extension, and by well-known names. Data only; `languages` reads it."""

from __future__ import annotations

from typing import Final

_EXTENSIONS_OF: Final[dict[str, str]] = {
    "actionscript": "as",
    "ada": "ada adb ads",
    "agda": "agda",
    "apex": "cls trigger apex",
    "arduino": "ino",
    "asm": "asm s nas nasm a51 nasl",
    "astro": "astro",
    "bash": "sh bash zsh ksh bats command ebuild eclass sh.in sbatch slurm tmux pacscript zsh-theme",
    "beancount": "beancount",
    "bibtex": "bib bibtex",
    "bicep": "bicep bicepparam",
    "bitbake": "bb bbappend bbclass",
    "bsl": "bsl os",
    "c": "c h cats h.in idc",
    "cairo": "cairo",
    "capnp": "capnp",
    "chatito": "chatito",
    "clarity": "clar",
    "clojure": "clj cljs cljc edn boot cl2 cljscm cljx hic",
    "cmake": "cmake cmake.in",
    "cobol": "cob cbl cobol cpy",
    "commonlisp": "lisp lsp cl asd ny podsl sexp",
    "cpon": "cpon",
    "cpp": "cpp cc cxx c++ hpp hh hxx h++ ipp tpp inl ixx cppm tcc txx",
    "csharp": "cs csx cake linq",
    "css": "css less",
    "cuda": "cu cuh",
    "d": "d di",
    "dart": "dart",
    "dockerfile": "dockerfile containerfile",
    "dtd": "dtd ent",
    "elisp": "el emacs",
    "elixir": "ex exs",
    "elm": "elm",
    "embeddedtemplate": "erb ejs rhtml ect jst",
    "erlang": "erl hrl escript app.src xrl yrl",
    "fennel": "fnl",
    "firrtl": "fir",
    "fish": "fish",
    "fortran": "f f77 f90 f95 f03 f08 for fpp ftn",
    "fsharp": "fs fsx",
    "fsharp_signature": "fsi",
    "func": "fc",
    "gdscript": "gd",
    "gleam": "gleam",
    "glsl": "glsl vert frag geom comp tesc tese fp frg fsh fshader geo glslf glslv gshader rchit rmiss shader vrx vs vshader",
    "gn": "gn gni",
    "go": "go",
    "graphql": "graphql gql graphqls",
    "groovy": "groovy gradle gvy grt gtpl",
    "hack": "hack hh hhi",
    "hare": "ha",
    "haskell": "hs hs-boot hsc",
    "haxe": "hx hxsl",
    "hcl": "hcl nomad tofu",
    "heex": "heex",
    "hlsl": "hlsl fx fxh hlsli cginc",
    "hyprlang": "hl",
    "ini": (
        "ini cfg conf desktop service editorconfig cnf container dof lektorproject mount network prefs socket target "
        "timer gitconfig"
    ),
    "ispc": "ispc",
    "janet": "janet",
    "java": "java jav jsh",
    "javascript": (
        "js mjs cjs jsx es6 _js bones jake javascript jsb jscad jsfl jslib jsm jspre jss njs pac sjs ssjs xsjs xsjslib"
    ),
    "json": (
        "json jsonc json5 jsonl ndjson geojson webmanifest avsc 4dform 4dproject gltf har ice json-tmlanguage mcmeta "
        "sarif slnlaunch tfstate topojson webapp yy yyp code-snippets code-workspace hujson sublime-build "
        "sublime-color-scheme sublime-commands sublime-completions sublime-keymap sublime-macro sublime-menu "
        "sublime-mousemap sublime-project sublime-settings sublime-theme sublime-workspace importmap"
    ),
    "jsonnet": "jsonnet libsonnet",
    "julia": "jl",
    "kdl": "kdl",
    "kotlin": "kt kts ktm",
    "latex": "tex sty ltx dtx ins bbx cbx lbx mkii mkiv mkvi",
    "linkerscript": "ld lds",
    "llvm": "ll",
    "lua": "lua rockspec nse p8 pd_lua rbxs wlua",
    "luau": "luau",
    "magik": "magik",
    "make": "mk mak make makefile mkfile",
    "matlab": "m matlab",
    "mermaid": "mmd mermaid",
    "netlinx": "axs axi",
    "nim": "nim nims nimble nimrod nim.cfg",
    "ninja": "ninja",
    "nix": "nix",
    "nqc": "nqc",
    "objc": "mm",
    "ocaml": "ml eliom eliomi ml4 mll mly",
    "ocaml_interface": "mli",
    "odin": "odin",
    "pascal": "pas pp dpr lpr dfm pascal",
    "perl": "pl pm t al cgi ph plx psgi",
    "pgn": "pgn",
    "php": "php phtml php5 inc aw ctp php3 php4 phps phpt",
    "po": "po pot",
    "pony": "pony",
    "powershell": "ps1 psm1 psd1",
    "prisma": "prisma",
    "properties": "properties",
    "proto": "proto",
    "puppet": "pp",
    "purescript": "purs",
    "python": "py pyi pyw pyx wsgi gyp gypi lmi py3 pyde pyp pyt rpy xpy pxd pxi",
    "qmljs": "qml qbs",
    "query": "scm",
    "r": "r rhistory rsx",
    "racket": "rkt rktd rktl scrbl",
    "re2c": "re2c",
    "rego": "rego",
    "ron": "ron",
    "ruby": "rb rake gemspec podspec ru jbuilder builder eye mspec prawn rabl rbi rbuild rbw rbx ruby thor watchr",
    "rust": "rs rs.in",
    "scala": "scala sc sbt kojo",
    "scheme": "ss sld sls sps",
    "scss": "scss",
    "smali": "smali",
    "smithy": "smithy",
    "solidity": "sol",
    "sparql": "sparql rq",
    "sql": "sql ddl psql mysql pgsql pls bdy fnc pck pkb pks plb plsql tpb tps trg",
    "squirrel": "nut",
    "starlark": "bzl star bazel",
    "svelte": "svelte",
    "swift": "swift",
    "tablegen": "td",
    "tcl": "tcl tm adp sdc xdc",
    "terraform": "tf tfvars",
    "thrift": "thrift",
    "toml": "toml",
    "tsx": "tsx",
    "twig": "twig",
    "typescript": "ts mts cts",
    "typst": "typ",
    "udev": "rules",
    "ungrammar": "ungram",
    "uxntal": "tal",
    "v": "vsh",
    "verilog": "v sv svh vh veo",
    "vhdl": "vhd vhdl vhf vhi vho vhs vht vhw",
    "vim": "vim vimrc",
    "vue": "vue",
    "wast": "wast",
    "wat": "wat",
    "wgsl": "wgsl",
    "xml": (
        "xml xsd xsl xslt xmi wsdl rng plist csproj vbproj fsproj props targets xaml resx dita ditamap pom kml gpx jats "
        "adml admx axaml axml ccproj ccxml clixml cproject csdef csl depproj ditaval dotsettings filters fxml gmx grxml "
        "iml ivy jelly jsproj launch mjml mdpolicy mxml natvis ncl ndproj nproj nuspec odd osm pkgproj proj ps1xml psc1 "
        "pubxml qhelp rbxmx rdf rss sch scxml sfproj shproj storyboard sublime-snippet ui urdf ux vcxproj vsixmanifest "
        "vssettings vstemplate vxml wixproj wsf wxi wxl wxs x3d xacro xib xlf xliff xmp xproj xspec xul zcml jrxml "
        "musicxml"
    ),
    "yaml": "yaml yml mir reek rviz sublime-syntax yaml-tmlanguage",
    "yuck": "yuck",
    "zig": "zig zon zig.zon",
}
BY_EXTENSION: Final[dict[str, str]] = {
    extension: language for language, extensions in _EXTENSIONS_OF.items() for extension in extensions.split()
}

_NAMES_OF: Final[dict[str, str]] = {
    "bash": (
        ".bashrc .bash_profile .bash_aliases .profile .zshrc .zprofile .envrc pkgbuild apkbuild .bash_functions "
        ".bash_history .bash_logout .cshrc .kshrc .login .xinitrc .xsession .zlogin .zlogout .zshenv .tmux.conf "
        "tmux.conf bashrc zshrc gradlew mvnw"
    ),
    "cmake": "cmakelists.txt",
    "dockerfile": "dockerfile containerfile",
    "elisp": ".emacs .spacemacs cask eask _emacs",
    "elixir": "mix.lock",
    "erlang": "emakefile rebar.config rebar.lock",
    "gitattributes": ".gitattributes",
    "gitignore": (
        ".gitignore .dockerignore .npmignore .eslintignore .prettierignore gitignore .ignore .hgignore .cvsignore "
        ".rgignore .stylelintignore .vercelignore .vscodeignore .helmignore .gcloudignore"
    ),
    "gn": ".gn",
    "gomod": "go.mod go.work",
    "gosum": "go.sum go.work.sum",
    "groovy": "jenkinsfile",
    "ini": (
        ".editorconfig .gitconfig .npmrc .flake8 .pylintrc .coveragerc .gitreview hosts pylintrc .gitmodules .pypirc .wgetrc"
    ),
    "javascript": "jakefile",
    "json": (
        ".prettierrc .eslintrc .babelrc composer.lock pipfile.lock flake.lock .all-contributorsrc .arcconfig .c8rc "
        ".htmlhintrc .nycrc .releaserc .watchmanconfig .swcrc .jshintrc .jscsrc .stylelintrc .lintstagedrc deno.lock "
        "bun.lock package.resolved module.bazel.lock"
    ),
    "kconfig": "kconfig",
    "linkerscript": "ld.script",
    "lua": ".luacheckrc",
    "make": "makefile gnumakefile kbuild bsdmakefile makefile.am makefile.in makefile.inc mkfile",
    "meson": "meson.build meson_options.txt",
    "perl": ".latexmkrc latexmkrc makefile.pl rexfile cpanfile ack",
    "php": ".php_cs .php_cs.dist phakefile",
    "pymanifest": "manifest.in",
    "python": ".gclient deps sconscript sconstruct wscript .pythonrc",
    "qmldir": "qmldir",
    "r": ".rprofile .rhistory",
    "readline": ".inputrc inputrc",
    "requirements": (
        "requirements.txt requirements-dev.txt constraints.txt dev-requirements.txt requirements.lock.txt "
        "requirements_dev.txt requirements-test.txt"
    ),
    "ruby": (
        "gemfile rakefile vagrantfile podfile fastfile brewfile guardfile capfile .irbrc .pryrc .simplecov appraisals "
        "berksfile dangerfile deliverfile jarfile mavenfile puppetfile snapfile steepfile thorfile buildfile"
    ),
    "starlark": "build workspace buck tiltfile build.bazel module.bazel workspace.bazel",
    "tcl": "owh",
    "toml": "pipfile cargo.lock poetry.lock uv.lock pdm.lock cargo.toml.orig gopkg.lock",
    "vim": ".vimrc .gvimrc",
    "xcompose": ".xcompose xcompose",
    "xml": ".classpath .cproject .project app.config nuget.config web.config packages.config settings.stylecop",
    "yaml": ".clang-format .clang-tidy .yamllint .clangd .gemrc citation.cff glide.lock pixi.lock yarn.lock pnpm-lock.yaml",
}
BY_NAME: Final[dict[str, str]] = {name: language for language, names in _NAMES_OF.items() for name in names.split()}
