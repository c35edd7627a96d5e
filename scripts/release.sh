#!/bin/sh
# Commits and tags a release of each module that users import: scripts/release.sh v0.1.0
# It pushes nothing, and prints the command that does.
set -eu
version=${1:?usage: scripts/release.sh vX.Y.Z}
root=github.com/belugalock/belugalock
nested="lockedmemory/belugamemory adksession"
tags=$version
for module in $nested; do tags="$tags $module/$version"; done

if [ -n "$(git status --porcelain)" ]; then
	echo "The work tree has changes. Commit them first." >&2
	exit 1
fi
if ! grep -q "^## \[${version#v}\]" CHANGELOG.md; then
	echo "CHANGELOG.md has no heading \"## [${version#v}]\". Give the entries of this release that heading." >&2
	exit 1
fi
for tag in $tags; do
	if git rev-parse --quiet --verify "refs/tags/$tag" >/dev/null; then
		echo "The tag $tag exists. Choose the next version." >&2
		exit 1
	fi
done
# Inside the repository a replace directive leads to the root. Users get the tag.
for module in $nested examples/beluga examples/adk; do
	(cd "$module" && go mod edit -require="$root@$version")
done
(cd examples/beluga && go mod edit -require="$root/lockedmemory/belugamemory@$version")
(cd examples/adk && go mod edit -require="$root/adksession@$version")
sed -i.before "s/^## \[${version#v}\] - not released yet/## [${version#v}] - $(date -u +%Y-%m-%d)/" CHANGELOG.md
rm CHANGELOG.md.before
git commit -qam "Release $version"
for tag in $tags; do git tag "$tag"; done
echo "git push origin HEAD $tags"
