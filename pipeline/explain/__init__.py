"""What each code means that a build, ``pipeline check`` or ``pipeline stops`` gives, and the fix.

codes/*.toml   the codes, a group a file: what each means, an example that gives it, the fix
explanations   reads them; broken invariants are explained by their own declarations
page           an explanation as a page of docs/codes/, and as text for a terminal
"""
