# Licences of dependencies

Belugalock has the MIT licence.
Its packages and `lockctl` compile these modules, and each licence permits use in a program under MIT or a closed one.
A program compiles the modules of its imports only; `distlock` and `lockedmemory` alone compile none.
Beluga AI, which `belugamemory` needs, is not in the list: its users have chosen it themselves.

`make licences` writes this page, and a test fails if a module is missing here.

| module | licence |
|---|---|
{{ range . }}| {{ .Name }} | {{ .LicenseName }} |
{{ end -}}
